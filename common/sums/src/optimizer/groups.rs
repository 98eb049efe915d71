//! Parameter groups: tensors with a learning rate and a weight decay of their own.

use std::str::FromStr;
use std::sync::Arc;

use crate::names::NamePatterns;
use crate::table::{ParameterTable, TensorKind};

/// How the tensors of a group are trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupRule {
    /// The factor of the learning rate.
    pub rate_factor: f64,
    /// The weight decay, if it is not the optimizer's.
    pub weight_decay: Option<f64>,
}

/// Parameter groups by the names of tensors, as in `*.bias norm*: weight_decay=0; head.*: lr_factor=10`. The first group with a pattern that
/// matches a name of the tensor counts; `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterGroups(Vec<(NamePatterns, GroupRule)>);

/// The groups of a model's tensors. By default, there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorGroups {
    /// The groups, after that of the tensors that are in none of them.
    groups: Vec<GroupRule>,
    /// The group of each tensor.
    of_tensor: Arc<[usize]>,
}

/// The group of tensors that are in no other.
const OTHERS: GroupRule = GroupRule { rate_factor: 1.0, weight_decay: None };

impl FromStr for ParameterGroups {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let groups = text.split(';').map(str::trim).filter(|group| !group.is_empty());
        groups.map(group).collect::<Result<_, _>>().map(Self)
    }
}

/// Parses a group: its patterns and its settings.
fn group(text: &str) -> Result<(NamePatterns, GroupRule), String> {
    let expected =
        || format!("'{text}': expected PATTERN …: weight_decay=X, lr_factor=X, as in *.bias norm*: weight_decay=0");
    let (patterns, settings) = text.split_once(':').ok_or_else(expected)?;
    let patterns = NamePatterns::from(patterns);
    let mut group = OTHERS;
    for setting in settings.split(',') {
        let (key, number) = setting.split_once('=').ok_or_else(expected)?;
        let number: f64 = number.trim().parse().map_err(|_| expected())?;
        if !(number.is_finite() && number >= 0.0) {
            return Err(format!("'{}': expected a number of at least 0", setting.trim()));
        }
        match key.trim() {
            "weight_decay" => group.weight_decay = Some(number),
            "lr_factor" => group.rate_factor = number,
            _ => return Err(expected()),
        }
    }
    if patterns.is_empty() { Err(expected()) } else { Ok((patterns, group)) }
}

impl ParameterGroups {
    /// Finds the group of each tensor. A pattern must match a trained tensor.
    pub fn of_tensors(&self, table: &ParameterTable) -> Result<TensorGroups, String> {
        if self.0.is_empty() {
            return Ok(TensorGroups::default());
        }
        let tensors = table.tensors.iter().filter(|entry| entry.kind == TensorKind::Trained).cloned().collect();
        let trained = ParameterTable { tensors };
        self.0.iter().try_for_each(|(patterns, _)| patterns.check(&trained))?;
        let group_of = |entry| self.0.iter().position(|(patterns, _)| patterns.has(entry)).map_or(0, |at| at + 1);
        let groups = std::iter::once(OTHERS).chain(self.0.iter().map(|(_, group)| *group)).collect();
        Ok(TensorGroups { groups, of_tensor: trained.tensors.iter().map(group_of).collect() })
    }
}

impl TensorGroups {
    /// Creates groups from the form of [`TensorGroups::parts`]. Fails if a tensor's group does not exist.
    pub fn new(groups: Vec<GroupRule>, of_tensor: Vec<usize>) -> Option<Self> {
        of_tensor.iter().all(|group| *group < groups.len()).then(|| Self { groups, of_tensor: of_tensor.into() })
    }

    /// Returns the groups, after that of the tensors that are in none of them, and the group of each tensor. Both are empty if all tensors
    /// are trained alike.
    pub fn parts(&self) -> (&[GroupRule], &[usize]) {
        (&self.groups, &self.of_tensor)
    }

    pub(crate) fn are_one(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn of(&self, tensor: usize) -> GroupRule {
        self.of_tensor.get(tensor).map_or(OTHERS, |group| self.groups[*group])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ParameterTable {
        let names = ["embed.weight", "layer.0.weight", "layer.0.bias", "layer.0.norm.weight", "head.weight"];
        ParameterTable::of_shapes(names.map(|name| (name.to_owned(), vec![2])))
    }

    #[test]
    fn the_first_matching_group_counts() {
        let groups: ParameterGroups =
            " *.bias *norm*: weight_decay=0; layer.*: lr_factor=0.5, weight_decay=1 ; ".parse().unwrap();
        let groups = groups.of_tensors(&table()).unwrap();
        assert_eq!(*groups.of_tensor, [0, 2, 1, 1, 0]);
        let numbers = [0, 2, 1].map(|tensor| (groups.of(tensor).rate_factor, groups.of(tensor).weight_decay));
        assert_eq!(numbers, [(1.0, None), (1.0, Some(0.0)), (0.5, Some(1.0))]);
        assert_eq!(TensorGroups::default().of(3), OTHERS);
    }

    #[test]
    fn bad_groups_are_refused_with_the_reason() {
        for (text, message) in [
            ("bias", "expected PATTERN"),
            (": weight_decay=0", "expected PATTERN"),
            ("a: decay=0", "expected PATTERN"),
            ("a: weight_decay=x", "expected PATTERN"),
            ("a: weight_decay=-1", "expected a number of at least 0"),
            ("a: lr_factor=inf", "expected a number of at least 0"),
        ] {
            let error = text.parse::<ParameterGroups>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        let error = "*.bais: weight_decay=0".parse::<ParameterGroups>().unwrap().of_tensors(&table()).unwrap_err();
        assert!(error.starts_with("'*.bais' matches no parameter: the names begin with embed.weight, "), "{error}");
    }
}
