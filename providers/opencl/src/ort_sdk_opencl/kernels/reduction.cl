/* Mean over some axes: one work item per output element walks the reduced ones. */

int walk(int index, int rank, const int8 shape, const int8 strides) {
    const int *dims = (const int *)&shape;
    const int *steps = (const int *)&strides;
    int result = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
        result += (index % dims[axis]) * steps[axis];
        index /= dims[axis];
    }
    return result;
}

__kernel void reduce_mean(__global const float *x, __global float *out, int kept_rank, int8 kept, int8 kept_strides,
                          int reduced_rank, int8 reduced, int8 reduced_strides, int count) {
    const int start = walk(get_global_id(0), kept_rank, kept, kept_strides);
    float sum = 0.0f;
    float lost = 0.0f; /* Kahan's correction keeps long sums accurate */
    for (int i = 0; i < count; ++i) {
        const float value = x[start + walk(i, reduced_rank, reduced, reduced_strides)] - lost;
        const float next = sum + value;
        lost = (next - sum) - value;
        sum = next;
    }
    out[get_global_id(0)] = sum / count;
}
