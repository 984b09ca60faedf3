/* out[batch, m, n] = a[batch, m, k] @ b[batch, k, n]; batches broadcast by strides. */

__kernel void matmul(__global const float *a, __global const float *b, __global float *out, int m, int n, int k, int rank,
                     int8 shape, int8 a_strides, int8 b_strides) {
    const int *dims = (const int *)&shape;
    const int *a_steps = (const int *)&a_strides;
    const int *b_steps = (const int *)&b_strides;
    const int column = get_global_id(0) % n;
    const int row = (get_global_id(0) / n) % m;
    int batch = get_global_id(0) / n / m;
    int a_start = row * k;
    int b_start = column;
    for (int axis = rank - 1; axis >= 0; --axis) {
        a_start += (batch % dims[axis]) * a_steps[axis] * m * k;
        b_start += (batch % dims[axis]) * b_steps[axis] * k * n;
        batch /= dims[axis];
    }
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum = fma(a[a_start + i], b[b_start + i * n], sum);
    }
    out[get_global_id(0)] = sum;
}
