// Lead Horovod 0.28.1 to XLA's headers where TensorFlow 2.19 and later keep them.
//
// horovod/tensorflow/xla_mpi_ops.cc includes "tensorflow/compiler/xla/client/xla_builder.h". TensorFlow's wheel has the
// same contents at "xla/hlo/builder/xla_builder.h". This file stands at the old path and forwards to the new one, so that
// Horovod's own source stays as it was released. It is on the include path only where TensorFlow lacks the old path.

#ifndef DEEPCDK_TENSORFLOW_COMPILER_XLA_CLIENT_XLA_BUILDER_H_
#define DEEPCDK_TENSORFLOW_COMPILER_XLA_CLIENT_XLA_BUILDER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xla/hlo/builder/xla_builder.h"

// XLA gave up its own names for Abseil's status types; Horovod still uses them.
namespace xla {

using Status = ::absl::Status;

template <typename T>
using StatusOr = ::absl::StatusOr<T>;

}  // namespace xla

#if HAVE_GPU
#include <cuda_runtime.h>

#include "xla/stream_executor/stream.h"

// horovod/tensorflow/mpi_ops.cc declares this function and expects TensorFlow to export it, which it no longer does. The
// stream's public handle is the same pointer. A plain definition is right: one translation unit alone includes this file.
namespace stream_executor {
namespace gpu {

cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}

}  // namespace gpu
}  // namespace stream_executor
#endif  // HAVE_GPU

#endif  // DEEPCDK_TENSORFLOW_COMPILER_XLA_CLIENT_XLA_BUILDER_H_
