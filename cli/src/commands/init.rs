//! The command `ata init`: writes a model's initial parameters to a file.

use ata_data::hex;
use ata_learn::ModelResolver;
use ata_sums::{encode_model, sha256_of_parameters};

use crate::args::InitArgs;
use crate::failure::{Failure, require};
use crate::output::{note, write_file};
use crate::run::model;
use crate::shell::word;

pub(crate) fn run(args: &InitArgs, default_model: &str, models: ModelResolver) -> Result<(), Failure> {
    let shown = args.file.display();
    let message = || format!("{shown} exists already: choose another name, or remove it first");
    require(!args.file.exists(), message)?;
    let specification = args.model.as_deref().unwrap_or(default_model);
    let model = models(specification)?;
    let parameters = model.initial_parameters(args.seed)?;
    let bytes = encode_model(&model.table(), &parameters, &model::metadata(specification, &*model));
    write_file(&args.file, &bytes)?;
    let (count, digest) = (parameters.len(), hex(&sha256_of_parameters(&parameters)));
    note!("{shown}: {count} parameters of model '{specification}', sha256 {digest}");
    note!("a coordinator without the model: ata coordinator --model {specification} --init {}", word(&args.file));
    Ok(())
}
