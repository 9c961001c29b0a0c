//! The value of an expression, given what it names.

use std::cell::RefCell;
use std::collections::BTreeMap;

use warmcore_statistics::Sample;

use super::{EACH, Expression, Fold, Function, Node, Operator, Selection};

/// A value in the making.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// One number, which goes with every trial.
    One(f64),
    /// A number for each trial.
    Trials(Vec<f64>),
}

impl Value {
    /// The numbers, one for each trial if there are several.
    pub fn numbers(&self) -> &[f64] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Trials(numbers) => numbers,
        }
    }
}

/// Why an expression has no value.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ValueError {
    #[error("it divides by zero: {0}")]
    DividesByZero(String),
    #[error("{0} has no value in a trial")]
    Missing(String),
    #[error("{left} trials and {right} trials are not pairs; take a median of each")]
    Trials { left: usize, right: usize },
    #[error("it is not a number: a root below 0, or infinite values against each other, of runs that did not end")]
    NotANumber,
    #[error("a quantile is that of a part from 0 to 1, not of {0}")]
    Probability(f64),
    #[error("a list is what `each=` chooses, and goes into `count_above` and `above_after` only")]
    List,
    /// What it needs cannot be had on this computer.
    #[error("{0}")]
    NotHere(String),
}

/// Finds the values of what an expression names.
pub trait Lookup {
    /// The values of a measure, one for each trial.
    ///
    /// # Errors
    /// Why there are none.
    fn measure(&self, selection: &Selection) -> Result<Vec<f64>, ValueError>;

    /// The lists that a measure with `each=` is, one for each trial.
    ///
    /// # Errors
    /// Why there are none.
    fn lists(&self, selection: &Selection) -> Result<Vec<Vec<f64>>, ValueError>;

    /// The value of another figure.
    ///
    /// # Errors
    /// Why there is none.
    fn figure(&self, name: &str) -> Result<Value, ValueError>;
}

impl Selection {
    /// Whether it is a list for each trial.
    pub(crate) fn is_list(&self) -> bool {
        self.choices.iter().any(|(key, _)| key == EACH)
    }
}

/// Figures that were computed already.
#[derive(Default)]
pub(crate) struct Known(RefCell<BTreeMap<String, Result<Value, ValueError>>>);

impl Known {
    /// A figure that is known, or is now: whatever names one often computes it once.
    pub fn or(&self, name: &str, compute: impl FnOnce() -> Result<Value, ValueError>) -> Result<Value, ValueError> {
        if let Some(known) = self.0.borrow().get(name) {
            return known.clone();
        }
        let value = compute();
        self.0.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }
}

/// The value of an expression.
///
/// # Errors
/// Why it has none.
pub fn evaluate(expression: &Expression, lookup: &dyn Lookup) -> Result<Value, ValueError> {
    let value = match &expression.node {
        Node::Number(number) => Value::One(*number),
        Node::Measure(selection) if selection.is_list() => return Err(ValueError::List),
        Node::Measure(selection) => Value::Trials(lookup.measure(selection)?),
        Node::Named(name) => lookup.figure(name)?,
        Node::Negated(inner) => map(evaluate(inner, lookup)?, |number| -number),
        Node::Binary(operator, left, right) => {
            let divisor = evaluate(right, lookup)?;
            if *operator == Operator::Divide && divisor.numbers().contains(&0.0) {
                return Err(ValueError::DividesByZero(right.to_string()));
            }
            zip(evaluate(left, lookup)?, divisor, |a, b| match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
            })?
        }
        Node::Over(Fold { mean, each, .. }) => {
            let add = |sum, one| zip(sum, evaluate(one, lookup)?, |a, b| a + b);
            let sum = each.iter().try_fold(Value::One(0.0), add)?;
            if *mean { map(sum, |sum| sum / each.len() as f64) } else { sum }
        }
        Node::Call(function @ (Function::CountAbove | Function::AboveAfter), arguments) => {
            let Node::Measure(selection) = &arguments[0].node else { return Err(ValueError::List) };
            let limit = middle(&evaluate(&arguments[1], lookup)?)?;
            let above = |list: &Vec<f64>| {
                let skipped = list.iter().skip_while(|number| *function == Function::AboveAfter && **number > limit);
                skipped.filter(|number| **number > limit).count() as f64
            };
            if !selection.is_list() {
                return Err(ValueError::List);
            }
            Value::Trials(lookup.lists(selection)?.iter().map(above).collect())
        }
        Node::Call(Function::Share, arguments) => {
            let of = |index: usize| evaluate(&arguments[index], lookup);
            let (part, all) = (of(0)?, of(1)?);
            let of_nothing = zip(part.clone(), all.clone(), |part, all| f64::from(part != 0.0 && all == 0.0))?;
            if of_nothing.numbers().contains(&1.0) {
                return Err(ValueError::DividesByZero(arguments[1].to_string()));
            }
            zip(part, all, |part, all| if part == 0.0 { 0.0 } else { part / all })?
        }
        Node::Call(function, arguments) => {
            let of = evaluate(&arguments[0], lookup)?;
            match function {
                Function::Abs => map(of, f64::abs),
                Function::Sqrt => map(of, f64::sqrt),
                Function::Quantile => {
                    let probability = middle(&evaluate(&arguments[1], lookup)?)?;
                    if !(0.0..=1.0).contains(&probability) {
                        return Err(ValueError::Probability(probability));
                    }
                    Value::One(of_sample(&of, |sample| sample.quantile(probability))?)
                }
                Function::Median => Value::One(middle(&of)?),
                Function::Mean => Value::One(of_sample(&of, Sample::mean)?),
                Function::Min => Value::One(of_sample(&of, Sample::min)?),
                Function::Max => Value::One(of_sample(&of, Sample::max)?),
                // Above.
                Function::Share | Function::CountAbove | Function::AboveAfter => return Err(ValueError::List),
            }
        }
    };
    if value.numbers().iter().any(|number| number.is_nan()) { Err(ValueError::NotANumber) } else { Ok(value) }
}

/// The middle of a value's trials.
///
/// # Errors
/// When it has none.
pub fn middle(value: &Value) -> Result<f64, ValueError> {
    of_sample(value, Sample::median)
}

fn of_sample(value: &Value, of: impl Fn(&Sample) -> Option<f64>) -> Result<f64, ValueError> {
    Sample::new(value.numbers()).ok().as_ref().and_then(of).ok_or(ValueError::NotANumber)
}

fn map(value: Value, of: impl Fn(f64) -> f64) -> Value {
    match value {
        Value::One(number) => Value::One(of(number)),
        Value::Trials(numbers) => Value::Trials(numbers.into_iter().map(of).collect()),
    }
}

fn zip(left: Value, right: Value, of: impl Fn(f64, f64) -> f64) -> Result<Value, ValueError> {
    Ok(match (left, right) {
        (Value::One(a), Value::One(b)) => Value::One(of(a, b)),
        (Value::Trials(left), Value::One(b)) => Value::Trials(left.into_iter().map(|a| of(a, b)).collect()),
        (Value::One(a), Value::Trials(right)) => Value::Trials(right.into_iter().map(|b| of(a, b)).collect()),
        (Value::Trials(left), Value::Trials(right)) => {
            if left.len() != right.len() {
                return Err(ValueError::Trials { left: left.len(), right: right.len() });
            }
            Value::Trials(left.into_iter().zip(right).map(|(a, b)| of(a, b)).collect())
        }
    })
}
