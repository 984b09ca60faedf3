/* Two-dimensional convolution, one work item per output element. x is [batch, channels, height, width]. */

__kernel void conv2d(__global const float *x, __global const float *w, __global const float *bias, int has_bias,
                     __global float *out, int8 input, int8 output, int8 kernel_size, int8 window) {
    const int channels = input.s1, height = input.s2, width = input.s3, groups = input.s4;
    const int out_channels = output.s1, out_height = output.s2, out_width = output.s3;
    const int rows = kernel_size.s0, columns = kernel_size.s1;
    const int stride_y = window.s0, stride_x = window.s1, pad_y = window.s2, pad_x = window.s3;
    const int dilation_y = window.s4, dilation_x = window.s5;
    const int in_group = channels / groups;
    int index = get_global_id(0);
    const int ox = index % out_width;
    index /= out_width;
    const int oy = index % out_height;
    index /= out_height;
    const int oc = index % out_channels;
    const int batch = index / out_channels;
    const int first = (oc / (out_channels / groups)) * in_group;
    float sum = has_bias ? bias[oc] : 0.0f;
    for (int c = 0; c < in_group; ++c) {
        for (int r = 0; r < rows; ++r) {
            const int iy = oy * stride_y - pad_y + r * dilation_y;
            if (iy < 0 || iy >= height) {
                continue;
            }
            for (int s = 0; s < columns; ++s) {
                const int ix = ox * stride_x - pad_x + s * dilation_x;
                if (ix >= 0 && ix < width) {
                    sum = fma(x[((batch * channels + first + c) * height + iy) * width + ix],
                              w[((oc * in_group + c) * rows + r) * columns + s], sum);
                }
            }
        }
    }
    out[get_global_id(0)] = sum;
}
