/* Softmax over the middle axis of [outer, n, inner], one work item per (outer, inner). */

__kernel void softmax(__global const float *x, __global float *out, int n, int inner) {
    const int start = (get_global_id(0) / inner) * n * inner + get_global_id(0) % inner;
    float highest = -INFINITY;
    for (int i = 0; i < n; ++i) {
        highest = fmax(highest, x[start + i * inner]);
    }
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        const float value = exp(x[start + i * inner] - highest);
        out[start + i * inner] = value;
        sum += value;
    }
    for (int i = 0; i < n; ++i) {
        out[start + i * inner] /= sum;
    }
}
