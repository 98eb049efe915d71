//! The rules of allocations in words.

/// Returns words for the rule that made an allocation; a rule that is not known is named.
pub(super) fn rule_in_words(rule: &str) -> String {
    let words = match rule {
        "" => "",
        "ras" => "tasks are allocated so that the last worker is expected to finish as early as possible",
        "uniform" => "tasks are allocated in equal shares, whatever the speeds",
        "proportional" => "tasks are allocated in proportion to the workers' speeds",
        "controller" => "shares of tasks move until all workers take the same time",
        "racing" => "every worker computes until enough gradients have arrived",
        "asynchronous" => "every worker always computes, and each gradient makes a step",
        _ => return with_numbers(rule).unwrap_or_else(|| format!("tasks are allocated by {rule}")),
    };
    words.into()
}

/// Returns words for a rule that contains numbers.
fn with_numbers(rule: &str) -> Option<String> {
    let workers = |count: &str| format!("{count} worker{}", if count == "1" { "" } else { "s" });
    if let Some(count) = rule.strip_prefix("the ").and_then(|rest| rest.strip_suffix(" of smallest score")) {
        return Some(format!("one task each for the {} with the smallest expected times", workers(count)));
    }
    let inner = rule.strip_prefix("warm-up (")?.strip_suffix(" with score 0)")?;
    let (unknown, zero) = inner.split_once(" never observed, ")?;
    let parts = [(unknown, "without a measured task"), (zero, "that may still be the fastest")];
    let first: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count != "0")
        .map(|(count, which)| format!("{} {which}", workers(count)))
        .collect();
    Some(format!("tasks go first to {} (warm-up)", first.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_words_that_need_no_paper() {
        for (rule, expected) in [
            ("ras", "tasks are allocated so that the last worker is expected to finish as early as possible"),
            (
                "warm-up (6 never observed, 0 with score 0)",
                "tasks go first to 6 workers without a measured task (warm-up)",
            ),
            (
                "warm-up (1 never observed, 2 with score 0)",
                "tasks go first to 1 worker without a measured task and 2 workers that may still be the fastest (warm-up)",
            ),
            ("the 3 of smallest score", "one task each for the 3 workers with the smallest expected times"),
            ("mine", "tasks are allocated by mine"),
            ("", ""),
        ] {
            assert_eq!(rule_in_words(rule), expected);
        }
    }
}
