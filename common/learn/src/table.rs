//! Creates the [`ParameterTable`] of a burn module: the names and shapes of its parameters in PyTorch.

use ata_sums::{ParameterTable, TensorEntry, TensorKind};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

pub(crate) fn table_of<N: Module>(network: &N) -> ParameterTable {
    let mut visitor = TableVisitor { path: Vec::new(), tensors: Vec::new() };
    network.visit(&mut visitor);
    // The sort keeps the order of burn among tensors of the same kind.
    visitor.tensors.sort_by_key(|entry| entry.kind != TensorKind::Trained);
    ParameterTable { tensors: visitor.tensors }
}

/// Returns whether a parameter is trained, rather than averaged. Without autodiff, a parameter still knows whether it needs a gradient with it.
pub(crate) fn is_trained<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    let (param, device) = (param.clone(), param.lazy_device());
    let param = if param.is_initialized() {
        param
    } else {
        // To ask for its values would change burn's random state.
        let (zeros, id) = (Tensor::zeros(param.lazy_shape(), &device), param.id);
        param.transform_for_load(zeros, id)
    };
    if device.is_autodiff() { param.is_require_grad() } else { param.train().is_require_grad() }
}

struct TableVisitor {
    /// The names of the modules on the current path, each with the type of the module that contains it.
    path: Vec<(String, String)>,
    tensors: Vec<TensorEntry>,
}

impl ModuleVisitor for TableVisitor {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut shape = param.lazy_shape().to_vec();
        let is_transposed = self.path.last().is_some_and(|(_, kind)| kind == "Struct:Linear") && D == 2;
        if is_transposed {
            shape.reverse();
        }
        let mut names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        // burn calls the parameters of normalisation layers gamma and beta.
        match names.last_mut() {
            Some(last @ &mut "gamma") => *last = "weight",
            Some(last @ &mut "beta") => *last = "bias",
            _ => {}
        }
        let kind = if is_trained(param) { TensorKind::Trained } else { TensorKind::Averaged };
        self.tensors.push(TensorEntry { is_transposed, kind, ..TensorEntry::new(names.join("."), shape) });
    }
}
