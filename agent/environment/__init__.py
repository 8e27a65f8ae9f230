"""Build the nodes' Python: TensorFlow, Horovod from source, our custom op, a program's own packages."""
