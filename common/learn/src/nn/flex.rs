//! Tensors of the CPU device, which burn calls flex, and the gradients of operations on them.

use std::cell::Cell;
use std::fmt::Debug;

use ata_nn::image::{ImageView, Size};
use ata_nn::linear::Matrix;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};
use burn_flex::{FlexTensor, Layout};

thread_local! {
    static BY_BURN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with burn's operations instead of those of this module, on every device, to compare results and times.
///
/// The gradients of the results are computed by burn, too.
pub fn by_burn<T>(work: impl FnOnce() -> T) -> T {
    let before = BY_BURN.replace(true);
    let result = work();
    BY_BURN.set(before);
    result
}

/// Returns `true` if this module's operations support a tensor; others use burn's.
pub(super) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    !BY_BURN.get()
        && x.dtype() == DType::F32
        && x.shape().num_elements() > 0
        && x.device().without_autodiff() == Device::flex()
}

pub(super) fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of f32")
}

/// Converts a contiguous tensor of two dimensions.
pub(super) fn matrix(tensor: &FlexTensor) -> Matrix<'_> {
    let shape = tensor.layout().shape();
    Matrix { numbers: numbers(tensor), rows: shape[0], columns: shape[1] }
}

/// Returns a tensor whose numbers an [`ImageView`] can describe: tensors flipped by burn have negative strides.
pub(super) fn viewable(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().has_positive_strides() { tensor } else { tensor.to_contiguous() }
}

/// Returns a view of a tensor of four dimensions that is [`viewable`].
pub(super) fn view(tensor: &FlexTensor) -> ImageView<'_> {
    let layout = tensor.layout();
    let strides = [0, 1, 2, 3].map(|dimension| layout.strides()[dimension].unsigned_abs());
    ImageView { numbers: &tensor.storage::<f32>()[layout.start_offset()..], strides }
}

/// Returns the number of images, and the size of one.
pub(super) fn sizes(images: &Tensor<4>) -> (usize, Size) {
    let [samples, channels, height, width] = images.dims();
    (samples, Size { channels, height, width })
}

pub(super) fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(numbers), Layout::contiguous(shape.into()), DType::F32)
}

/// Creates a tensor of shape [samples, channels, height, width] whose channels are innermost in memory.
pub(super) fn images(numbers: Vec<f32>, samples: usize, size: Size) -> FlexTensor {
    let Size { channels, height, width } = size;
    let stride = |numbers: usize| isize::try_from(numbers).expect("less than the memory");
    let strides = [size.numbers(), 1, width * channels, channels].map(stride);
    let layout = Layout::new(Shape::from([samples, channels, height, width]), strides.into(), 0);
    FlexTensor::new(Bytes::from_elems(numbers), layout, DType::F32)
}

/// A tensor of burn's autodiff, with any strategy of checkpoints.
type AutodiffTensor = FloatTensor<Autodiff<Flex>>;

/// Computes the gradients of the operands from the state of the forward pass, the gradient of the result, and which operands need one.
type OperandGradients<S, const N: usize> = fn(S, FlexTensor, [bool; N]) -> [Option<FlexTensor>; N];

/// Runs an operation with `plain`, or, if a gradient will be needed, with `tracked`, which also returns the state for `gradients`.
pub(super) fn differentiable<C: CheckpointStrategy, S: Clone + Debug + Send + 'static, const N: usize>(
    operands: [AutodiffTensor; N],
    plain: impl FnOnce([FlexTensor; N]) -> FlexTensor,
    tracked: impl FnOnce([FlexTensor; N]) -> (FlexTensor, S),
    gradients: OperandGradients<S, N>,
) -> AutodiffTensor {
    let nodes = operands.each_ref().map(AutodiffTensor::node);
    let operands = operands.map(AutodiffTensor::into_primitive);
    match OperandBackward(gradients).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(plain(operands)),
        OpsKind::Tracked(prepared) => {
            let (output, state) = tracked(operands);
            prepared.finish(state, output)
        }
    }
}

#[derive(Debug)]
struct OperandBackward<S, const N: usize>(OperandGradients<S, N>);

impl<S: Clone + Debug + Send + 'static, const N: usize> Backward<Flex, N> for OperandBackward<S, N> {
    type State = S;

    fn backward(self, ops: Ops<S, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = (self.0)(ops.state, gradient, wanted);
        for (node, found) in ops.parents.into_iter().zip(found) {
            if let (Some(node), Some(found)) = (node, found) {
                gradients.register::<Flex>(node.id, found);
            }
        }
    }
}
