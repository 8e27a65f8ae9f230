"""The Python of the nodes: TensorFlow, Horovod built from source, our custom op, a program's own packages."""
