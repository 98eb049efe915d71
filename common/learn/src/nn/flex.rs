//! Tensors of the CPU device, which burn calls flex.

use std::cell::Cell;

use ata_nn::image::{Size, View};
use ata_nn::linear::Matrix;
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};
use burn_flex::{FlexTensor, Layout};

thread_local! {
    static BY_BURN: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` with burn's operations in place of this module's, on every device: to compare results and times with.
///
/// The gradients of what is computed in it are burn's too.
pub fn by_burn<T>(work: impl FnOnce() -> T) -> T {
    let before = BY_BURN.replace(true);
    let result = work();
    BY_BURN.set(before);
    result
}

/// Whether the operations of this module take a tensor: the others are left to burn's.
pub(super) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    !BY_BURN.get()
        && x.dtype() == DType::F32
        && x.shape().num_elements() > 0
        && x.device().without_autodiff() == Device::flex()
}

/// The numbers of a contiguous tensor.
pub(super) fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of f32")
}

/// A contiguous tensor of two dimensions.
pub(super) fn matrix(tensor: &FlexTensor) -> Matrix<'_> {
    let shape = tensor.layout().shape();
    Matrix { numbers: numbers(tensor), rows: shape[0], columns: shape[1] }
}

/// A tensor whose numbers a [`View`] can name: burn's flipped tensors have negative strides.
pub(super) fn viewable(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().has_positive_strides() { tensor } else { tensor.to_contiguous() }
}

/// The numbers of a tensor of four dimensions that is [`viewable`].
pub(super) fn view(tensor: &FlexTensor) -> View<'_> {
    let layout = tensor.layout();
    let strides = [0, 1, 2, 3].map(|dimension| layout.strides()[dimension].unsigned_abs());
    View { numbers: &tensor.storage::<f32>()[layout.start_offset()..], strides }
}

/// The number of images, and the size of one.
pub(super) fn sizes(images: &FlexTensor) -> (usize, Size) {
    let shape = images.layout().shape();
    (shape[0], Size { channels: shape[1], height: shape[2], width: shape[3] })
}

/// The size of images, shape [samples, channels, height, width].
pub(super) fn size_of(images: &Tensor<4>) -> Size {
    let [_, channels, height, width] = images.dims();
    Size { channels, height, width }
}

/// A contiguous tensor.
pub(super) fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(numbers), Layout::contiguous(shape.into()), DType::F32)
}

/// A tensor of shape [samples, channels, height, width] whose channels lie innermost.
pub(super) fn images(numbers: Vec<f32>, samples: usize, size: Size) -> FlexTensor {
    let Size { channels, height, width } = size;
    let stride = |numbers: usize| isize::try_from(numbers).expect("less than the memory");
    let strides = [size.numbers(), 1, width * channels, channels].map(stride);
    let layout = Layout::new(Shape::from([samples, channels, height, width]), strides.into(), 0);
    FlexTensor::new(Bytes::from_elems(numbers), layout, DType::F32)
}
