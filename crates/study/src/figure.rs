//! Figures: numbers that follow from measures of named cells.
//!
//! `median(elapsed_ns[pool, n=1]) / median(elapsed_ns[pool, n=4])`
//!
//! | part | means |
//! |---|---|
//! | `measure[cell]` | a measure in each trial of a cell: `warmcore list metrics` names them; `cpu_time_ns[cell, task=NAME]` and `application=NAME` are CPU time of tasks, `time.CAUSE[cell]` is time by cause |
//! | `[cell, key=value]` | of a cell that stands for several, the one in which an axis has this value; `scheduler=` chooses among its schedulers, whose name may stand alone; values with commas are quoted |
//! | `+ - * /`, `( )`, `-x` | arithmetic, trial by trial; a number goes with every trial |
//! | `median mean min max` | of the trials, one number |
//! | `quantile(x, p)` | the same, `p` from 0 to 1 |
//! | `abs(x) sqrt(x)` | of each trial |
//! | `share(x, y)` | x over y in each trial, and nothing of nothing |
//! | `[cell, each=TASK]` | of CPU time, a list: that of every instance of a task, in the order in which they were made |
//! | `count_above(list, x)` | how many of a list are above x |
//! | `above_after(list, x)` | how many of a list are above x after the first that is not |
//! | `sum_over(axis, x) mean_over(axis, x)` | over all values of an axis, of x in the cells of each |
//! | `name` | another figure of the study |
//!
//! What is left with a value for each trial is its median. Trial k of two cells has the same seed, so that arithmetic pairs them.
//!
//! Does not know what a cell is: the caller looks up what is selected.

mod value;

use std::fmt;

pub(crate) use value::Known;
pub use value::{Lookup, Value, ValueError, evaluate, middle};

/// The longest expression that is read, in bytes.
pub const MOST_BYTES: usize = 4096;
/// How deeply parts may be nested.
const MOST_DEPTH: usize = 64;

/// An expression, or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    /// What it is.
    pub node: Node,
    /// Where it begins in the text, in bytes.
    pub at: usize,
}

/// What an expression is.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// A number.
    Number(f64),
    /// A measure of a cell.
    Measure(Selection),
    /// Another figure of the study.
    Named(String),
    /// The opposite.
    Negated(Box<Expression>),
    /// Two values and what is done with them.
    Binary(Operator, Box<Expression>, Box<Expression>),
    /// A function and what it is of.
    Call(Function, Vec<Expression>),
    /// A sum or mean over the values of an axis.
    Over(Fold),
}

/// A sum or mean over the values of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Fold {
    /// Whether the sum is divided by the number of values.
    pub mean: bool,
    /// Name of the axis.
    pub axis: String,
    /// Of what.
    pub of: Box<Expression>,
    /// The same for each value; nothing as long as nobody has looked the axis up.
    pub each: Vec<Expression>,
}

/// Key of a selection that is a list of tasks.
pub(crate) const EACH: &str = "each";

/// Names of folds, and whether they divide.
const FOLDS: [(&str, bool); 2] = [("sum_over", false), ("mean_over", true)];

/// A measure of a cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    /// Name of the measure.
    pub measure: String,
    /// Name of the cell.
    pub cell: String,
    /// What is chosen of the cell: key, empty where the value stood alone, and value.
    pub choices: Vec<(String, String)>,
}

/// What is done with two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// Their sum.
    Add,
    /// Their difference.
    Subtract,
    /// Their product.
    Multiply,
    /// Their ratio.
    Divide,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// The middle trial.
    Median,
    /// The mean of trials.
    Mean,
    /// The smallest trial.
    Min,
    /// The largest trial.
    Max,
    /// A quantile of trials.
    Quantile,
    /// Without sign.
    Abs,
    /// The square root.
    Sqrt,
    /// A ratio, and nothing of nothing.
    Share,
    /// How many of a list are above a number.
    CountAbove,
    /// How many of a list are above a number after the first that is not.
    AboveAfter,
}

impl Function {
    /// Each with its name and of how many values it is.
    const ALL: [(&'static str, Self, usize); 10] = [
        ("median", Self::Median, 1),
        ("mean", Self::Mean, 1),
        ("min", Self::Min, 1),
        ("max", Self::Max, 1),
        ("quantile", Self::Quantile, 2),
        ("abs", Self::Abs, 1),
        ("sqrt", Self::Sqrt, 1),
        ("share", Self::Share, 2),
        ("count_above", Self::CountAbove, 2),
        ("above_after", Self::AboveAfter, 2),
    ];
}

/// Why a text is no expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ParseError {
    /// Where, in bytes from the beginning of the text.
    pub at: usize,
    /// Why.
    pub problem: ParseProblem,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ParseProblem {
    /// Something else was expected.
    #[error("expected {expected}, found {found}")]
    Expected { expected: &'static str, found: String },
    #[error("there is no function `{name}`{}", did_you_mean(.nearest.as_deref()))]
    Function { name: String, nearest: Option<String> },
    /// A function of another number of values.
    #[error("`{name}` takes {wanted} values, not {found}")]
    Arguments { name: String, wanted: usize, found: usize },
    #[error("a quantile is that of a part from 0 to 1, not of {found}")]
    Probability { found: String },
    #[error("it is longer than {MOST_BYTES} bytes or nested more than {MOST_DEPTH} deep")]
    TooLarge,
}

/// ` (did you mean `x`?)`, or nothing.
pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Reads an expression.
///
/// # Errors
/// Where and why it is none.
pub fn parse(text: &str) -> Result<Expression, ParseError> {
    if text.len() > MOST_BYTES {
        return Err(ParseError { at: 0, problem: ParseProblem::TooLarge });
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expression = parser.sum()?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.expected("an operator or the end"));
    }
    Ok(expression)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter: char| !accepts(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn expected(&mut self, expected: &'static str) -> ParseError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), |letter| format!("`{letter}`"));
        ParseError { at: self.at, problem: ParseProblem::Expected { expected, found } }
    }

    fn sum(&mut self) -> Result<Expression, ParseError> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            left = self.binary(operator, left, Self::product)?;
        }
    }

    fn product(&mut self) -> Result<Expression, ParseError> {
        let mut left = self.signed()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(left),
            };
            left = self.binary(operator, left, Self::signed)?;
        }
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: Expression,
        right: fn(&mut Self) -> Result<Expression, ParseError>,
    ) -> Result<Expression, ParseError> {
        let at = self.at;
        self.at += 1;
        let right = right(self)?;
        Ok(Expression { node: Node::Binary(operator, Box::new(left), Box::new(right)), at })
    }

    fn signed(&mut self) -> Result<Expression, ParseError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(ParseError { at: self.at, problem: ParseProblem::TooLarge });
        }
        self.skip_space();
        let at = self.at;
        let found = if self.take('-') {
            Expression { node: Node::Negated(Box::new(self.signed()?)), at }
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn primary(&mut self) -> Result<Expression, ParseError> {
        self.skip_space();
        let at = self.at;
        let node = match self.peek() {
            Some('(') => {
                self.at += 1;
                let inner = self.sum()?;
                if !self.take(')') {
                    return Err(self.expected("`)`"));
                }
                return Ok(inner);
            }
            Some(letter) if letter.is_ascii_digit() || letter == '.' => self.number()?,
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => self.name()?,
            _ => return Err(self.expected("a number, a measure or a function")),
        };
        Ok(Expression { node, at })
    }

    fn number(&mut self) -> Result<Node, ParseError> {
        let start = self.at;
        self.take_while(|letter| letter.is_ascii_digit() || letter == '.' || letter == '_');
        if self.rest().starts_with(['e', 'E']) {
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take_while(|letter| letter.is_ascii_digit());
        }
        let text = self.text[start..self.at].replace('_', "");
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Node::Number(number)),
            _ => {
                let problem = ParseProblem::Expected { expected: "a finite number", found: format!("`{text}`") };
                Err(ParseError { at: start, problem })
            }
        }
    }

    fn name(&mut self) -> Result<Node, ParseError> {
        let start = self.at;
        let name =
            self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.').to_owned();
        match self.peek() {
            Some('[') => self.selection(name).map(Node::Measure),
            Some('(') => self.call(name, start),
            _ => Ok(Node::Named(name)),
        }
    }

    fn call(&mut self, name: String, start: usize) -> Result<Node, ParseError> {
        if let Some((_, mean)) = FOLDS.iter().find(|(known, _)| *known == name) {
            return self.fold(*mean);
        }
        let Some((_, function, wanted)) = Function::ALL.into_iter().find(|(known, ..)| *known == name) else {
            let known = Function::ALL.iter().map(|(known, ..)| *known).chain(FOLDS.map(|(known, _)| known));
            let nearest = warmcore_topology::nearest(&name, known);
            let nearest = nearest.map(str::to_owned);
            return Err(ParseError { at: start, problem: ParseProblem::Function { name, nearest } });
        };
        self.at += 1;
        let mut arguments = vec![self.sum()?];
        while self.take(',') {
            arguments.push(self.sum()?);
        }
        if !self.take(')') {
            return Err(self.expected("`,` or `)`"));
        }
        let found = arguments.len();
        if wanted != found {
            return Err(ParseError { at: start, problem: ParseProblem::Arguments { name, wanted, found } });
        }
        if let (Function::Quantile, Some(Node::Number(part))) = (function, arguments.get(1).map(|of| &of.node))
            && !(0.0..=1.0).contains(part)
        {
            return Err(ParseError { at: start, problem: ParseProblem::Probability { found: part.to_string() } });
        }
        Ok(Node::Call(function, arguments))
    }

    fn fold(&mut self, mean: bool) -> Result<Node, ParseError> {
        self.at += 1;
        self.skip_space();
        let axis =
            self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-').to_owned();
        if axis.is_empty() || !self.take(',') {
            return Err(self.expected("the name of an axis and `,`"));
        }
        let of = Box::new(self.sum()?);
        if !self.take(')') {
            return Err(self.expected("`)`"));
        }
        Ok(Node::Over(Fold { mean, axis, of, each: Vec::new() }))
    }

    fn selection(&mut self, measure: String) -> Result<Selection, ParseError> {
        self.at += 1;
        let cell = self.word("the name of a cell")?;
        let mut choices = Vec::new();
        while self.take(',') {
            let first = self.word("`key=value` or a scheduler")?;
            let value = if self.take('=') { Some(self.word("a value")?) } else { None };
            choices.push(match value {
                None => (String::new(), first),
                // A setting of the scheduler, or of its column.
                Some(value) if first.contains([':', '@']) => (String::new(), format!("{first}={value}")),
                Some(value) => (first, value),
            });
        }
        if !self.take(']') {
            return Err(self.expected("`,` or `]`"));
        }
        Ok(Selection { measure, cell, choices })
    }

    fn word(&mut self, expected: &'static str) -> Result<String, ParseError> {
        if self.take('"') {
            let word = self.take_while(|letter| letter != '"').to_owned();
            return if self.take('"') { Ok(word) } else { Err(self.expected("`\"`")) };
        }
        self.skip_space();
        let word = self.take_while(|letter| !matches!(letter, ',' | '=' | '[' | ']' | '"')).trim().to_owned();
        if word.is_empty() { Err(self.expected(expected)) } else { Ok(word) }
    }
}

impl Expression {
    /// Shows every measure and every other figure that it names to `visit`, with where they stand.
    pub(crate) fn each_name<'a>(&'a self, visit: &mut dyn FnMut(NamedPart<'a>, usize)) {
        match &self.node {
            Node::Number(_) => {}
            Node::Measure(selection) => visit(NamedPart::Measure(selection), self.at),
            Node::Named(name) => visit(NamedPart::Figure(name), self.at),
            Node::Negated(inner) => inner.each_name(visit),
            Node::Binary(_, left, right) => {
                left.each_name(visit);
                right.each_name(visit);
            }
            Node::Call(_, arguments) => arguments.iter().for_each(|argument| argument.each_name(visit)),
            Node::Over(Fold { of, each, .. }) if each.is_empty() => of.each_name(visit),
            Node::Over(Fold { each, .. }) => each.iter().for_each(|one| one.each_name(visit)),
        }
    }

    /// Shows every measure to `change`.
    pub(crate) fn each_selection_mut(&mut self, change: &mut dyn FnMut(&mut Selection)) {
        match &mut self.node {
            Node::Number(_) | Node::Named(_) => {}
            Node::Measure(selection) => change(selection),
            Node::Negated(inner) => inner.each_selection_mut(change),
            Node::Binary(_, left, right) => {
                left.each_selection_mut(change);
                right.each_selection_mut(change);
            }
            Node::Call(_, arguments) => arguments.iter_mut().for_each(|argument| argument.each_selection_mut(change)),
            Node::Over(Fold { of, each, .. }) => {
                of.each_selection_mut(change);
                each.iter_mut().for_each(|one| one.each_selection_mut(change));
            }
        }
    }
}

/// What an expression names.
#[derive(Clone, Copy, Debug)]
pub enum NamedPart<'a> {
    /// A measure of a cell.
    Measure(&'a Selection),
    /// Another figure.
    Figure(&'a str),
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Number(number) => write!(f, "{number}"),
            Node::Measure(selection) => write!(f, "{selection}"),
            Node::Named(name) => f.write_str(name),
            Node::Negated(inner) => write!(f, "-{inner}"),
            Node::Binary(operator, left, right) => {
                let sign = match operator {
                    Operator::Add => '+',
                    Operator::Subtract => '-',
                    Operator::Multiply => '*',
                    Operator::Divide => '/',
                };
                write!(f, "({left} {sign} {right})")
            }
            Node::Call(function, arguments) => {
                let name = Function::ALL.iter().find(|(_, known, _)| known == function).map_or("", |(name, ..)| name);
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", arguments.join(", "))
            }
            Node::Over(Fold { mean, axis, of, .. }) => {
                let name = FOLDS.iter().find(|(_, divides)| divides == mean).map_or("", |(name, _)| name);
                write!(f, "{name}({axis}, {of})")
            }
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}", self.measure, self.cell)?;
        for (key, value) in &self.choices {
            let value = if value.contains([',', '=']) { format!("\"{value}\"") } else { value.clone() };
            if key.is_empty() { write!(f, ", {value}")? } else { write!(f, ", {key}={value}")? }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests;
