"""The part of oneDNN 3's C interface that is used, and of the OpenMP library under it.

``tools/generate_onednn_interface.py`` makes ``interface.py`` of it, which takes 50 ms less than parsing C in each process.
"""

from __future__ import annotations

__all__ = ["C_DECLARATIONS"]

C_DECLARATIONS = """
typedef void *handle_t;
typedef struct { int arg; handle_t memory; } exec_arg_t;
typedef struct { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } version_t;

const version_t *dnnl_version(void);
int dnnl_get_effective_cpu_isa(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int count);

int dnnl_engine_create(handle_t *, int kind, size_t index);
int dnnl_stream_create(handle_t *, handle_t engine, unsigned flags);

int dnnl_memory_desc_create_with_tag(handle_t *, int ndims, const int64_t *dims, int data_type, int tag);
int dnnl_memory_desc_create_with_strides(handle_t *, int ndims, const int64_t *dims, int data_type, const int64_t *strides);
int dnnl_memory_desc_clone(handle_t *, handle_t existing);
int dnnl_memory_desc_destroy(handle_t);
int dnnl_memory_desc_equal(handle_t, handle_t);
size_t dnnl_memory_desc_get_size(handle_t);
int dnnl_memory_create(handle_t *, handle_t memory_desc, handle_t engine, void *data);
int dnnl_memory_set_data_handle(handle_t, void *data);
int dnnl_memory_destroy(handle_t);

int dnnl_primitive_attr_create(handle_t *);
int dnnl_primitive_attr_destroy(handle_t);
int dnnl_primitive_attr_set_post_ops(handle_t, handle_t post_ops);
int dnnl_primitive_attr_set_scales_mask(handle_t, int arg, int mask);
int dnnl_primitive_attr_set_zero_points_mask(handle_t, int arg, int mask);
int dnnl_primitive_attr_set_scratchpad_mode(handle_t, int mode);
int dnnl_post_ops_create(handle_t *);
int dnnl_post_ops_destroy(handle_t);
int dnnl_post_ops_append_sum(handle_t, float scale, int32_t zero_point, int data_type);
int dnnl_post_ops_append_eltwise(handle_t, int algorithm, float alpha, float beta);
int dnnl_post_ops_append_binary(handle_t, int algorithm, handle_t src1_desc);

int dnnl_primitive_desc_destroy(handle_t);
handle_t dnnl_primitive_desc_query_md(handle_t primitive_desc, int what, int index);
int dnnl_primitive_desc_query(handle_t primitive_desc, int what, int index, void *result);
int dnnl_primitive_create(handle_t *, handle_t primitive_desc);
int dnnl_primitive_execute(handle_t, handle_t stream, int count, const exec_arg_t *);
int dnnl_primitive_destroy(handle_t);

int dnnl_convolution_forward_primitive_desc_create(handle_t *, handle_t engine, int prop_kind, int algorithm, handle_t src,
    handle_t weights, handle_t bias, handle_t dst, const int64_t *strides, const int64_t *dilates, const int64_t *padding_l,
    const int64_t *padding_r, handle_t attr);
int dnnl_deconvolution_forward_primitive_desc_create(handle_t *, handle_t engine, int prop_kind, int algorithm, handle_t src,
    handle_t weights, handle_t bias, handle_t dst, const int64_t *strides, const int64_t *dilates, const int64_t *padding_l,
    const int64_t *padding_r, handle_t attr);
int dnnl_pooling_forward_primitive_desc_create(handle_t *, handle_t engine, int prop_kind, int algorithm, handle_t src,
    handle_t dst, const int64_t *strides, const int64_t *kernel, const int64_t *dilation, const int64_t *padding_l,
    const int64_t *padding_r, handle_t attr);
int dnnl_matmul_primitive_desc_create(handle_t *, handle_t engine, handle_t src, handle_t weights, handle_t bias, handle_t dst,
    handle_t attr);
int dnnl_reorder_primitive_desc_create(handle_t *, handle_t src, handle_t src_engine, handle_t dst, handle_t dst_engine,
    handle_t attr);
"""
