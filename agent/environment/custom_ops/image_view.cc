// DeepcdkImageView: take a box of an image, mirror it if it is to be, and resize it, from bytes to bytes.
//
//     image     uint8 [height, width, 3]
//     box       int32 [4], top, left, height and width, within the image
//     mirrored  bool []
//     view      uint8 [attribute height, attribute width, 3]
//
// Bilinear between the middles of pixels, without antialiasing, as tf.image.resize does it, but in whole numbers:
// weights are 128ths along each axis, and one rounding comes last. So the result is the same on every processor, and
// beside the exact one it is off by no more than what 256ths of the neighbours' differences and half a level make.
//
// TensorFlow's own operations make float32 of it, four times as many bytes to write, batch and bring to a GPU, and
// mirror in a pass of their own. This one works row by row, in 16 bits, and needs no more than two rows at a time.
// It is registered through TensorFlow's C API, which keeps its form from version to version.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define WITH_AVX2 __attribute__((target("avx2")))
#endif

namespace {

constexpr char kName[] = "DeepcdkImageView";
constexpr int kChannels = 3;
constexpr int kOne = 128;  // a weight of 1
constexpr int kShift = 14;  // of kOne * kOne
constexpr int kHalf = 1 << (kShift - 1);
constexpr int kLoad = 16;  // bytes that one load brings; a row may be read, and a blended one written, so far beyond
constexpr int kLargestBox = (1 << 16) - 1;  // a side of a JPEG, at most; both keep Blends within 32 bits
constexpr int kLargestView = 1 << 14;

struct Box {
  int top, left, height, width;
};

// Two neighbours along an axis, and how many 128ths the second one counts.
struct Blend {
  int first, second, weight;
};

// Returns what each of `to` pixels is made of along an axis of `from` pixels.
std::vector<Blend> Blends(uint32_t from, uint32_t to) {
  std::vector<Blend> blends(to);
  for (uint32_t i = 0; i < to; ++i) {
    const uint32_t middle = (2 * i + 1) * from;  // in parts of which a pixel has 2 * to
    const uint32_t place = middle > to ? middle - to : 0;
    const int first = place / (2 * to);
    const int second = std::min<int>(first + 1, from - 1);
    const int weight = (place % (2 * to) * kOne + to) / (2 * to);
    blends[i] = {first, second, second == first ? 0 : weight};
  }
  return blends;
}

// Blends the pixels of a row along it, in 128ths of a level.
void Across(const uint8_t* row, const std::vector<Blend>& columns, int16_t* to) {
  for (const Blend& column : columns) {
    const uint8_t* first = row + kChannels * column.first;
    const uint8_t* second = row + kChannels * column.second;
    for (int c = 0; c < kChannels; ++c) *to++ = first[c] * (kOne - column.weight) + second[c] * column.weight;
  }
}

// Blends two such rows into levels.
void Down(const int16_t* above, const int16_t* below, int weight, int count, uint8_t* to) {
  for (int i = 0; i < count; ++i) to[i] = (above[i] * (kOne - weight) + below[i] * weight + kHalf) >> kShift;
}

#ifdef WITH_AVX2

// How four columns are made, two from each of two loads: which bytes of a load are blended, and how much each counts.
struct alignas(32) Four {
  uint8_t bytes[2 * kLoad];
  int8_t weights[2 * kLoad];
  int starts[2];
};

// Returns the columns by fours, the last one repeated to fill them; none where two lie too far apart for one load.
std::vector<Four> Fours(const std::vector<Blend>& columns) {
  std::vector<Four> fours((columns.size() + 3) / 4);
  for (size_t pair = 0; pair < 2 * fours.size(); ++pair) {
    const Blend* both[2];
    for (int k = 0; k < 2; ++k) both[k] = &columns[std::min(2 * pair + k, columns.size() - 1)];
    const int start = std::min(both[0]->first, both[1]->first);
    if (kChannels * (std::max(both[0]->second, both[1]->second) - start + 1) > kLoad) return {};
    Four& four = fours[pair / 2];
    four.starts[pair % 2] = kChannels * start;
    for (int i = 0; i < 2 * kChannels; ++i) {
      const Blend& blend = *both[i / kChannels];
      // 128 is no signed byte: a pixel that counts alone counts as two halves.
      const bool alone = blend.weight == 0 || blend.weight == kOne;
      const int first = blend.weight == kOne ? blend.second : blend.first;
      const int at = kLoad * (pair % 2) + 2 * i;
      four.bytes[at] = kChannels * (first - start) + i % kChannels;
      four.bytes[at + 1] = kChannels * ((alone ? first : blend.second) - start) + i % kChannels;
      four.weights[at] = alone ? kOne / 2 : kOne - blend.weight;
      four.weights[at + 1] = alone ? kOne / 2 : blend.weight;
    }
  }
  return fours;
}

// Does what Across does; reads and writes up to kLoad bytes beyond the rows.
WITH_AVX2 void AcrossByFours(const uint8_t* row, const std::vector<Four>& fours, int16_t* to) {
  for (const Four& four : fours) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + four.starts[0]));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + four.starts[1]));
    const __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const __m256i levels = _mm256_shuffle_epi8(pixels, *reinterpret_cast<const __m256i*>(four.bytes));
    const __m256i sums = _mm256_maddubs_epi16(levels, *reinterpret_cast<const __m256i*>(four.weights));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(sums));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * kChannels), _mm256_extracti128_si256(sums, 1));
    to += 4 * kChannels;
  }
}

// Does what Down does.
WITH_AVX2 void DownBySixteens(const int16_t* above, const int16_t* below, int weight, int count, uint8_t* to) {
  const __m256i weights = _mm256_set1_epi32((kOne - weight) | weight << 16);
  const __m256i half = _mm256_set1_epi32(kHalf);
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(above + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(below + i));
    const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weights), half);
    const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weights), half);
    const __m256i levels = _mm256_packs_epi32(_mm256_srai_epi32(low, kShift), _mm256_srai_epi32(high, kShift));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bytes);
  }
  Down(above + i, below + i, weight, count - i, to + i);
}

#endif

// Makes the rows of one view, each row of the image blended across once.
class Viewer {
 public:
  Viewer(const uint8_t* image, int64_t image_height, int64_t image_width, const Box& box, bool mirrored, int width)
      : image_(image), end_(image + image_height * image_width * kChannels),
        image_width_(image_width), box_(box), width_(width), columns_(Blends(box.width, width)),
        last_(kChannels * box.width + kLoad) {
    if (mirrored) std::reverse(columns_.begin(), columns_.end());
    for (auto& row : rows_) row.resize(kChannels * (width + 4) + kLoad);
#ifdef WITH_AVX2
    static const bool has_avx2 = __builtin_cpu_supports("avx2");
    has_avx2_ = has_avx2;
    if (has_avx2_) fours_ = Fours(columns_);
#endif
  }

  void Write(const std::vector<Blend>& rows, uint8_t* to) {
    for (const Blend& row : rows) {
      const int16_t* above = Row(row.first, row.second);
      const int16_t* below = Row(row.second, row.first);
#ifdef WITH_AVX2
      if (has_avx2_) {
        DownBySixteens(above, below, row.weight, kChannels * width_, to);
        to += kChannels * width_;
        continue;
      }
#endif
      Down(above, below, row.weight, kChannels * width_, to);
      to += kChannels * width_;
    }
  }

 private:
  // Returns a row of the box, blended across; `kept` is the one that must not make room for it.
  const int16_t* Row(int row, int kept) {
    for (int k = 0; k < 2; ++k) {
      if (held_[k] == row) return rows_[k].data();
    }
    const int k = held_[0] == kept ? 1 : 0;
    held_[k] = row;
    const uint8_t* from = image_ + ((box_.top + row) * image_width_ + box_.left) * kChannels;
    if (end_ - from < kChannels * box_.width + kLoad) {  // what lies beyond the image is not to be read
      std::memcpy(last_.data(), from, kChannels * box_.width);
      from = last_.data();
    }
#ifdef WITH_AVX2
    if (!fours_.empty()) {
      AcrossByFours(from, fours_, rows_[k].data());
      return rows_[k].data();
    }
#endif
    Across(from, columns_, rows_[k].data());
    return rows_[k].data();
  }

  const uint8_t* const image_;
  const uint8_t* const end_;
  const int64_t image_width_;
  const Box box_;
  const int width_;
  std::vector<Blend> columns_;
  std::vector<uint8_t> last_;
  std::vector<int16_t> rows_[2];
  int held_[2] = {-1, -1};  // the rows of the box that rows_ has
#ifdef WITH_AVX2
  bool has_avx2_;
  std::vector<Four> fours_;
#endif
};

struct Attributes {
  int64_t height = 0, width = 0;
};

using Status = std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)>;
using Tensor = std::unique_ptr<TF_Tensor, decltype(&TF_DeleteTensor)>;

Status NewStatus() { return Status(TF_NewStatus(), TF_DeleteStatus); }

Status Invalid(const std::string& what) {
  Status status = NewStatus();
  TF_SetStatus(status.get(), TF_INVALID_ARGUMENT, (std::string(kName) + ": " + what).c_str());
  return status;
}

std::string Shape(const TF_Tensor* tensor) {
  std::string shape;
  for (int i = 0; i < TF_NumDims(tensor); ++i) shape += (i ? ", " : "") + std::to_string(TF_Dim(tensor, i));
  return "[" + shape + "]";
}

// Returns what is wrong with the inputs; empty where nothing is.
std::string Fault(const TF_Tensor* image, const TF_Tensor* box, const TF_Tensor* mirrored) {
  if (TF_NumDims(image) != 3 || TF_Dim(image, 2) != kChannels) {
    return "image has the shape " + Shape(image) + ": must be [height, width, 3]";
  }
  if (TF_NumDims(box) != 1 || TF_Dim(box, 0) != 4) return "box has the shape " + Shape(box) + ": must be [4]";
  if (TF_NumDims(mirrored) != 0) return "mirrored has the shape " + Shape(mirrored) + ": must be []";
  const int32_t* place = static_cast<const int32_t*>(TF_TensorData(box));
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t start = place[axis], length = place[axis + 2], size = TF_Dim(image, axis);
    if (start < 0 || length < 1 || start + length > size || length > kLargestBox) {
      return "box is " + std::to_string(length) + (axis ? " wide at left " : " high at top ") + std::to_string(start) +
             ": must be 1 to " + std::to_string(kLargestBox) + " pixels within the image's " + std::to_string(size);
    }
  }
  return "";
}

void* Create(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  Status status = NewStatus();
  TF_OpKernelConstruction_GetAttrInt64(construction, "height", &attributes->height, status.get());
  if (TF_GetCode(status.get()) == TF_OK) {
    TF_OpKernelConstruction_GetAttrInt64(construction, "width", &attributes->width, status.get());
  }
  if (TF_GetCode(status.get()) == TF_OK && std::max(attributes->height, attributes->width) > kLargestView) {
    status = Invalid("height and width must be " + std::to_string(kLargestView) + " at most");
  }
  if (TF_GetCode(status.get()) != TF_OK) TF_OpKernelConstruction_Failure(construction, status.get());
  return attributes.release();
}

void Delete(void* kernel) { delete static_cast<Attributes*>(kernel); }

void Compute(void* kernel, TF_OpKernelContext* context) {
  const auto* attributes = static_cast<const Attributes*>(kernel);
  Status status = NewStatus();
  const auto input = [&](int i) {
    TF_Tensor* tensor = nullptr;
    if (TF_GetCode(status.get()) == TF_OK) TF_GetInput(context, i, &tensor, status.get());
    return Tensor(tensor, TF_DeleteTensor);
  };
  const Tensor image = input(0), box = input(1), mirrored = input(2);
  if (TF_GetCode(status.get()) == TF_OK) {
    const std::string fault = Fault(image.get(), box.get(), mirrored.get());
    if (!fault.empty()) status = Invalid(fault);
  }
  if (TF_GetCode(status.get()) != TF_OK) return TF_OpKernelContext_Failure(context, status.get());
  const int64_t shape[] = {attributes->height, attributes->width, kChannels};
  const Tensor view(TF_AllocateOutput(context, 0, TF_UINT8, shape, 3, shape[0] * shape[1] * shape[2], status.get()),
                    TF_DeleteTensor);
  if (TF_GetCode(status.get()) != TF_OK) return TF_OpKernelContext_Failure(context, status.get());
  const int32_t* place = static_cast<const int32_t*>(TF_TensorData(box.get()));
  Viewer viewer(static_cast<const uint8_t*>(TF_TensorData(image.get())), TF_Dim(image.get(), 0),
                TF_Dim(image.get(), 1), {place[0], place[1], place[2], place[3]},
                *static_cast<const bool*>(TF_TensorData(mirrored.get())), shape[1]);
  viewer.Write(Blends(place[2], shape[0]), static_cast<uint8_t*>(TF_TensorData(view.get())));
}

// The caller names the shape, which it knows from the attributes.
void UnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// Registers the operation while the library is loaded, which is when TensorFlow collects those that are new.
__attribute__((constructor)) void Register() {
  Status status = NewStatus();
  TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(kName);
  for (const char* input : {"image: uint8", "box: int32", "mirrored: bool"}) {
    TF_OpDefinitionBuilderAddInput(definition, input);
  }
  TF_OpDefinitionBuilderAddOutput(definition, "view: uint8");
  for (const char* attribute : {"height: int >= 1", "width: int >= 1"}) {
    TF_OpDefinitionBuilderAddAttr(definition, attribute);
  }
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, UnknownShape);
  // What is wrong with either is told where the library is loaded: TensorFlow holds what it registers against it then.
  TF_RegisterOpDefinition(definition, status.get());
  TF_RegisterKernelBuilder(kName, TF_NewKernelBuilder(kName, "CPU", Create, Compute, Delete), status.get());
}

}  // namespace
