//! Arithmetic expressions in a worker's number `i` and the number of workers `n`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::LawError;
use super::parser::Parser;

/// A parsed expression of numbers, `i`, `n`, `+ - * /`, parentheses, `sqrt` and `ln`.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Number(f64),
    Worker,
    Workers,
    Unary(fn(f64) -> f64, Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
}

type Operator = fn(f64, f64) -> f64;

/// The most numbers, letters, signs and parentheses of an expression: more than any law needs. Parsing, evaluating and dropping it
/// recurse at most this deep, which every stack can hold.
const MAX_TERMS: u32 = 256;

impl Expression {
    pub(super) fn evaluate(&self, i: f64, n: f64) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Worker => i,
            Self::Workers => n,
            Self::Unary(function, inner) => function(inner.evaluate(i, n)),
            Self::Binary(operator, left, right) => operator(left.evaluate(i, n), right.evaluate(i, n)),
        }
    }

    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Self, LawError> {
        sum(parser, &mut { MAX_TERMS })
    }
}

fn sum(parser: &mut Parser<'_>, terms: &mut u32) -> Result<Expression, LawError> {
    chain(parser, terms, product, &[('+', f64::add), ('-', f64::sub)])
}

fn product(parser: &mut Parser<'_>, terms: &mut u32) -> Result<Expression, LawError> {
    chain(parser, terms, factor, &[('*', f64::mul), ('/', f64::div)])
}

/// Parses operands of one precedence level, combined from the left.
fn chain(
    parser: &mut Parser<'_>,
    terms: &mut u32,
    operand: fn(&mut Parser<'_>, &mut u32) -> Result<Expression, LawError>,
    operators: &[(char, Operator)],
) -> Result<Expression, LawError> {
    let mut left = operand(parser, terms)?;
    while let Some(&(_, operator)) = operators.iter().find(|(symbol, _)| parser.accept(*symbol)) {
        left = Expression::Binary(operator, Box::new(left), Box::new(operand(parser, terms)?));
    }
    Ok(left)
}

fn factor(parser: &mut Parser<'_>, terms: &mut u32) -> Result<Expression, LawError> {
    *terms = terms.checked_sub(1).ok_or_else(|| parser.error("an expression of fewer terms"))?;
    if parser.accept('-') {
        return Ok(Expression::Unary(f64::neg, Box::new(factor(parser, terms)?)));
    }
    if parser.accept('(') {
        return closed(parser, terms);
    }
    if let Some(number) = parser.number()? {
        return Ok(Expression::Number(number));
    }
    let start = parser.position();
    match parser.word() {
        "i" => Ok(Expression::Worker),
        "n" => Ok(Expression::Workers),
        function @ ("sqrt" | "ln") => {
            parser.expect('(')?;
            let function = if function == "sqrt" { f64::sqrt } else { f64::ln };
            Ok(Expression::Unary(function, Box::new(closed(parser, terms)?)))
        }
        _ => Err(parser.error_at(start, "a number, i, n, sqrt(…), ln(…) or '('")),
    }
}

fn closed(parser: &mut Parser<'_>, terms: &mut u32) -> Result<Expression, LawError> {
    let inner = sum(parser, terms)?;
    parser.expect(')')?;
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, value) in [
            ("29*i", 87.0),
            ("1 + 2*3 - 4/2", 5.0),
            ("(1+2)*3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("16/4/2", 2.0),
            ("-i + n", 48.0),
            ("--2", 2.0),
            ("sqrt(i+1) * ln(n/51*2.5e0)", 2.0 * 2.5_f64.ln()),
            ("1e-3*i", 0.003),
        ] {
            let mut parser = Parser::new(text);
            let parsed = Expression::parse(&mut parser).unwrap();
            assert!((parsed.evaluate(3.0, 51.0) - value).abs() < 1e-12, "{text}");
        }
    }

    #[test]
    fn length_and_nesting_are_limited() {
        for text in ["(", "-", "1+", "2*", "sqrt(", "1/(1-"] {
            let text = text.repeat(100_000) + "1";
            assert!(Expression::parse(&mut Parser::new(&text)).is_err());
        }
        let longest = "1+".repeat(MAX_TERMS as usize - 1) + "1";
        assert_eq!(Expression::parse(&mut Parser::new(&longest)).unwrap().evaluate(1.0, 1.0), f64::from(MAX_TERMS));
    }
}
