//! The result of studies as a Markdown page: what is right, what is not and why, and what cannot be asked.

use crate::document::{ExpectationResult, StudyDocument, StudyResult, decimal};
use crate::file::{Cost, Mark, MarkKind};
use crate::judge::Judgement;
use crate::library;
use crate::score::Score;

/// The sections of the page: which studies, heading, and what a reader should know of them.
const SECTIONS: [(Judgement, &str, &str); 7] = [
    (Judgement::Right, "Right", "Every figure that counts lies in its band."),
    (
        Judgement::RightInSign,
        "Right in sign",
        "The direction is the measured one; the size of at least one figure is outside of its band.",
    ),
    (Judgement::Wrong, "Wrong", "At least one figure has the wrong direction, or lacks a value that was expected."),
    (
        Judgement::NotAnswerableHere,
        "Not answerable where this page was made",
        "The question can be asked on a computer that has what is named.",
    ),
    (
        Judgement::Fitted,
        "Fitted, not scored",
        "A parameter was fitted to the published figure, so that its agreement shows nothing.",
    ),
    (Judgement::NotScored, "Shown, not scored", "Every figure has a mark that says why it is not scored."),
    (Judgement::NotExpressible, "Not expressible", "This program cannot ask these questions today."),
];

/// The page; `data` is the name of the document's own file. Of studies that are compared with a baseline and nothing else, the table alone.
pub fn page(document: &StudyDocument, title: &str, introduction: &str, data: Option<&str>) -> String {
    if document.rows().is_empty() {
        return document.studies.iter().map(|study| format!("## {}\n\n{}", study.title, against(study))).collect();
    }
    let mut text = format!("# {title}\n\n{introduction}\n\n{}\n\n## All questions\n\n", document.conclusion());
    text.push_str("| question | measured | here | band | size | judgement |\n|---|--:|--:|--:|--:|---|\n");
    for study in &document.studies {
        let main =
            study.expectations.iter().rev().filter(|of| of.counted).max_by_key(|of| (of.judgement, of.unexpected));
        let main = main.or(study.expectations.first());
        let cell = |of: fn(&ExpectationResult) -> String| main.map(of).unwrap_or_default();
        text.push_str(&format!(
            "| [{}](#{}) | {} | {} | {} | {} | {} |\n",
            study.title,
            anchor(&study.title),
            cell(|of| decimal(of.published)),
            cell(ExpectationResult::here),
            cell(ExpectationResult::band),
            cell(|of| decimal(of.size)),
            study.judgement.words()
        ));
    }
    let score = Score::markdown(document);
    if !score.is_empty() {
        text.push_str(&format!("\n{score}"));
    }
    text.push_str(
        "\nThe row of a question with several figures has the worst, and among equals the first. *Size* is the change here in parts of the measured one, by logarithms \
         where the figure is a ratio; 0.5 to 2 counts as the same size.\n",
    );
    for (judgement, heading, words) in SECTIONS {
        let mut of_section = document.studies.iter().filter(|study| study.judgement == judgement).peekable();
        if of_section.peek().is_none() {
            continue;
        }
        text.push_str(&format!("\n## {heading}\n\n{words}\n"));
        of_section.for_each(|study| text.push_str(&section(study)));
    }
    if let Some(data) = data {
        text.push_str(&format!("\n## Data\n\n`{data}` has every figure, trial range, band and reason.\n"));
    }
    text
}

fn section(study: &StudyResult) -> String {
    let mut text =
        format!("\n### {}\n\n**Question.** {}\n\n**Source.** {}\n\n", study.title, study.question, study.source);
    if !study.note.is_empty() {
        text.push_str(&format!("{}\n\n", study.note));
    }
    if let Some(missing) = &study.not_expressible {
        text.push_str(&format!("**Missing.** {}\n\n**What would settle it.** {}\n", missing.missing, missing.settle));
        return text;
    }
    text.push_str("| figure | measured | here | trials | band | judgement |\n|---|--:|--:|--:|--:|---|\n");
    for of in &study.expectations {
        let value = of.no_value.clone().unwrap_or_else(|| decimal(of.value));
        let not_counted = if of.counted { "" } else { ", not counted" };
        text.push_str(&format!(
            "| {} | {} | {value} | {} | {} | {}{not_counted} |\n",
            of.name,
            decimal(of.published),
            of.trials_in_words(),
            of.band(),
            of.words()
        ));
    }
    text.push('\n');
    text.push_str(&against(study));
    for of in &study.expectations {
        text.push_str(&format!("- *{}*: `{}`. Band: {}.", of.name, of.figure, of.reason.trim_end_matches('.')));
        match &of.mark {
            Some(Mark { kind: MarkKind::Fitted, why }) => text.push_str(&format!(" Fitted to it: {why}.")),
            Some(Mark { kind, why }) => {
                text.push_str(&format!(" Not scored, {}: {}.", kind.words(), why.trim_end_matches('.')))
            }
            None => {}
        }
        text.push('\n');
    }
    for of in &study.not_asked {
        text.push_str(&format!(
            "\n**Not asked: {}.** Missing: {}\n\n**What would settle it.** {}\n",
            of.name, of.missing.missing, of.missing.settle
        ));
    }
    for of in &study.expectations {
        // What was known of an answer that has become right is no reason any more.
        if let Some(outside) = of.outside.as_ref().filter(|_| of.judgement != Judgement::Right) {
            text.push_str(&format!(
                "\n**Why {} is {}, as far as known.** {}\n\n**What would settle it.** {}\n",
                of.name,
                outside.verdict.words(),
                outside.why,
                outside.settle
            ));
        }
    }
    for wrong in &study.wrong_models {
        text.push_str(&match wrong.rejected_by.as_slice() {
            _ if !wrong.tried => format!("\nWrong model, not tried: {}.\n", wrong.name),
            [] => format!("\nWrong model that nothing rejects: {}.\n", wrong.name),
            by => format!("\nWrong model that is rejected: {} (by {}).\n", wrong.name, by.join(", ")),
        });
    }
    let long = if study.cost == Cost::Long { ", not run by the tests" } else { "" };
    text.push_str(&format!("\nCommand: `warmcore study run {}`{long}.\n", library::name_of(&study.name)));
    text
}

/// The figures of a study against its baseline, if it has one: a sentence and a table.
fn against(study: &StudyResult) -> String {
    let Some(words) = study.against_the_baseline() else { return String::new() };
    let headings = ExpectationResult::AGAINST_HEADINGS.map(|heading| heading.trim_start_matches('>'));
    let mut text = format!("{words}\n\n| {} |\n|---|--:|--:|--:|--:|---|\n", headings.join(" | "));
    for (mut row, unexpected) in study.expectations.iter().filter_map(ExpectationResult::against_row) {
        if unexpected {
            row[5] = format!("**{}**", row[5]);
        }
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text.push_str(
        "\nThe ratio is this run's figure over the baseline's, trial by trial, with its 95 % interval. *Unclear*: no difference beyond the \
         margin is shown.\n\n",
    );
    text
}

impl ExpectationResult {
    /// How many trials its value is of, and the least and the most of a trial: `8: 1.1 to 1.3`. Nothing without a value.
    pub fn trials_in_words(&self) -> String {
        let count = match self.trial_count.unwrap_or(self.trials.len()) {
            0 => return String::new(),
            count => count,
        };
        // Of a figure of all trials the one number has no range.
        let ranges = count > 1 && self.trials.len() != 1;
        match self.range.filter(|_| ranges) {
            None => count.to_string(),
            Some([low, high]) if low == high => format!("{count}, all equal"),
            Some([low, high]) => format!("{count}: {} to {}", decimal(Some(low)), decimal(Some(high))),
        }
    }
}

/// The anchor that readers of Markdown make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_readers_of_markdown() {
        assert_eq!(anchor("One CCD, or both? (9900X)"), "one-ccd-or-both-9900x");
    }
}
