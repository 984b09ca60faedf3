/* Element by element, with broadcasting: strides of a broadcast dimension are 0. */

int source_index(int index, int rank, const int8 shape, const int8 strides) {
    const int *dims = (const int *)&shape;
    const int *steps = (const int *)&strides;
    int result = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
        result += (index % dims[axis]) * steps[axis];
        index /= dims[axis];
    }
    return result;
}

__kernel void add(__global const float *a, __global const float *b, __global float *out, int rank, int8 shape,
                  int8 a_strides, int8 b_strides) {
    const int i = get_global_id(0);
    out[i] = a[source_index(i, rank, shape, a_strides)] + b[source_index(i, rank, shape, b_strides)];
}

__kernel void mul(__global const float *a, __global const float *b, __global float *out, int rank, int8 shape,
                  int8 a_strides, int8 b_strides) {
    const int i = get_global_id(0);
    out[i] = a[source_index(i, rank, shape, a_strides)] * b[source_index(i, rank, shape, b_strides)];
}

__kernel void relu(__global const float *x, __global float *out) {
    const int i = get_global_id(0);
    const float value = x[i];
    out[i] = value < 0.0f ? 0.0f : value; /* keeps NaN */
}
