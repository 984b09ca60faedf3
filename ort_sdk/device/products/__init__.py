"""Matrix products, convolutions and quantized products, each in the form that suits a class of devices."""
