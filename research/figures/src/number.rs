//! Formats numbers as tick labels.

/// The first number that is written with a power of ten, because readers would have to count its zeros.
const LARGEST_PLAIN: f64 = 1e6;
const SMALLEST_PLAIN: f64 = 1e-3;

/// Returns the labels of multiples of `step`, all with the same number of decimals and, for large or small ones, the same power.
pub(crate) fn multiples(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let plain = largest == 0.0 || (SMALLEST_PLAIN..LARGEST_PLAIN).contains(&largest);
    let power = if plain { 0 } else { exponent(largest) };
    let unit = 10.0_f64.powi(power);
    let decimals = usize::try_from(-exponent(step / unit)).unwrap_or(0);
    let label = |value: &f64| match (value / unit, power) {
        (scaled, _) if scaled.abs() < step / unit / 2.0 => "0".to_owned(),
        (scaled, 0) => plain_label(scaled, decimals),
        (scaled, _) => format!("{}×10{}", plain_label(scaled, decimals), superscript(power)),
    };
    values.iter().map(label).collect()
}

/// Returns the labels of (factor, power of ten), as on a log axis: plain if all are short enough to read, else with powers.
pub(crate) fn scientific(values: &[(i32, i32)]) -> Vec<String> {
    let plain = values.iter().all(|(_, power)| (-3..=5).contains(power));
    let label = |&(factor, power): &(i32, i32)| match factor {
        _ if plain => plain_label(f64::from(factor) * 10.0_f64.powi(power), usize::try_from(-power).unwrap_or(0)),
        1 => format!("10{}", superscript(power)),
        _ => format!("{factor}×10{}", superscript(power)),
    };
    values.iter().map(label).collect()
}

/// Returns the exponent of the largest power of ten that is not above a positive value.
pub(crate) fn exponent(value: f64) -> i32 {
    // The computed logarithm of a step such as 0.001 may be slightly below the integer.
    (value.log10() + 1e-9).floor() as i32
}

/// Formats a decimal number with commas between thousands, and a minus sign instead of a hyphen.
fn plain_label(value: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{}{rest}", with_commas(whole))
}

/// Inserts commas between thousands: 10000 becomes 10,000.
pub(crate) fn with_commas(whole: &str) -> String {
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn superscript(power: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = |digit: char| digit.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    power.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], step: f64, expected: &[&str]) {
        assert_eq!(multiples(values, step), expected);
    }

    #[test]
    fn labels_of_one_axis_share_decimals_and_power() {
        check(&[0.0, 0.5, 1.0], 0.5, &["0", "0.5", "1.0"]);
        check(&[-20.0, 0.0, 20.0], 20.0, &["−20", "0", "20"]);
        check(&[0.0, 5e3, 1e4], 5e3, &["0", "5,000", "10,000"]);
        check(&[5e5, 1e6, 1.5e6], 5e5, &["0.5×10⁶", "1.0×10⁶", "1.5×10⁶"]);
        check(&[2e-5, 4e-5], 2e-5, &["2×10⁻⁵", "4×10⁻⁵"]);
        check(&[0.1 + 0.2], 0.1, &["0.3"]);
    }
}
