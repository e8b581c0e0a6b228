//! What a judged metric would ask about a case, and what of it the ledger answers already. Nothing is sent.

use super::sample::Sample;
use super::{AskedTurn, JudgeRoute, JudgedEvaluator, Reading};
use crate::judge::Usage;
use crate::judge::answers::Answers;
use crate::judge::asker::{Asker, LookUp, Source};
use crate::suite::evalset::model::{EvalMetric, Invocation, Rubric};
use crate::suite::plan::PlannedQuestions;

/// Counts the questions of a metric about the turns of a case. A turn that can't be asked about fails its case without
/// a question.
pub(crate) async fn look_up(
    answers: &Answers<'_>,
    (evaluator, metric, route): (&'static JudgedEvaluator, &EvalMetric, &JudgeRoute),
    (actuals, expecteds): (&[Invocation], &[Invocation]),
    rubrics: &[Rubric],
    run: u32,
    planned: &mut PlannedQuestions,
) {
    if evaluator.of_rubrics && !rubrics.iter().any(|rubric| rubric.text.is_some()) {
        return;
    }
    for (actual, expected) in actuals.iter().zip(expecteds) {
        let turn = AskedTurn {
            actual,
            expected,
            rubrics,
        };
        let template = evaluator.template_of(metric);
        let Ok(prompt) = evaluator.question(&turn, template) else {
            return;
        };
        let ids = turn.rubric_ids();
        let reading = Reading {
            rubrics: &ids,
            template,
        };
        for sample in 1..=route.samples {
            let look_up = LookUp::new(answers);
            let asker = Asker {
                source: Source::Ledger(&look_up),
                rounds: 1,
                anew: false,
            };
            // What comes of it is not of interest here, only whether it is known.
            let _ = asker
                .put(&Sample {
                    evaluator,
                    route,
                    prompt: &prompt,
                    reading,
                    run,
                    sample,
                })
                .await;
            let seen = look_up.seen();
            if seen.answered > 0 {
                planned.add_known();
                continue;
            }
            let most = Usage {
                prompt: prompt.len() as u64,
                completion: route.max_output_tokens.into(),
                ..Usage::default()
            };
            planned.add(seen.first_prompt_tokens.unwrap_or_default(), most);
        }
    }
}
