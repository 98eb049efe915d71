//! Lists of policies on the command line: commas separate both policies and their parameters.

use ata_policies::POLICIES;

use crate::failure::{Failure, require};

/// Parses a list. `ata:alpha=3,preset=printed,gta` is two policies, because a part key=value belongs to the policy
/// before it. `all` is every policy with its defaults, except those in `but`.
pub(crate) fn parse(texts: &[String], but: &[&str]) -> Result<Vec<String>, Failure> {
    let mut policies: Vec<String> = Vec::new();
    for part in texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty()) {
        let is_parameter = part.find('=').is_some_and(|equals| !part[..equals].contains(':'));
        match policies.last_mut() {
            Some(policy) if is_parameter => {
                policy.push(if policy.contains(':') { ',' } else { ':' });
                policy.push_str(part);
            }
            _ if part == "all" => {
                let all = POLICIES.entries().iter().map(|entry| entry.name).filter(|name| !but.contains(name));
                policies.extend(all.map(String::from));
            }
            _ => policies.push(part.into()),
        }
    }
    require(!policies.is_empty(), || "--policy: expected at least one policy; `ata policies` lists them")?;
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stay_with_their_policy() {
        let texts = ["ata:alpha=3,preset=printed,gta".to_owned(), "uta".to_owned()];
        assert_eq!(parse(&texts, &[]).unwrap(), ["ata:alpha=3,preset=printed", "gta", "uta"]);
        assert!(parse(&[" ,".to_owned()], &[]).is_err());
        let all = parse(&["all".to_owned()], &["asgd"]).unwrap();
        assert_eq!(all.len(), POLICIES.entries().len() - 1);
    }
}
