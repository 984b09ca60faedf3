/* Elements moved, not changed. */

__kernel void transpose(__global const float *x, __global float *out, int rank, int8 shape, int8 strides) {
    const int *dims = (const int *)&shape;
    const int *steps = (const int *)&strides;
    int index = get_global_id(0);
    int from = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
        from += (index % dims[axis]) * steps[axis];
        index /= dims[axis];
    }
    out[get_global_id(0)] = x[from];
}

/* Copies [outer, width] into columns [offset, offset + width) of [outer, total]. */
__kernel void place(__global const float *x, __global float *out, int width, int total, int offset) {
    const int index = get_global_id(0);
    out[(index / width) * total + offset + index % width] = x[index];
}
