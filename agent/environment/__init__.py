"""Build the Python environments of nodes: TensorFlow, Horovod from source, the custom op, a program's packages."""
