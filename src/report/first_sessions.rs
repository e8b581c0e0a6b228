//! The sessions that a reader should look at first, in one form for all short texts.

use crate::output::WorstSession;
use crate::summary::Summary;

/// A session to look at, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstSession {
    /// 1 is to be looked at first.
    pub place: u64,
    /// As in the table `sessions`.
    pub session_id: String,
    /// As there.
    pub project_id: Option<String>,
    /// In words.
    pub why: String,
}

/// The first sessions of a run: in the order of attention where the run has one, else the worst by their scores.
pub fn first_sessions(summary: &Summary, most: usize) -> Vec<FirstSession> {
    if let Some(attention) = &summary.attention {
        let first = attention.first.iter().take(most);
        return first
            .map(|session| FirstSession {
                place: session.place,
                session_id: session.session_id.clone(),
                project_id: session.project_id.clone(),
                why: session.why.clone(),
            })
            .collect();
    }
    let worst = summary.worst_sessions.iter().take(most).zip(1..);
    worst
        .map(|(session, place)| FirstSession {
            place,
            session_id: session.session_id.clone(),
            project_id: session.project_id.clone(),
            why: scores_of(session),
        })
        .collect()
}

fn scores_of(session: &WorstSession) -> String {
    let mut words = Vec::new();
    let named = [
        ("agent_reliability", session.agent_reliability),
        ("agent_consistency", session.agent_consistency),
    ];
    for (name, score) in named {
        words.extend(score.map(|score| format!("{name} {score:.4}")));
    }
    if let Some(step) = &session.worst_step {
        words.push(format!(
            "{} {:.4} in {}",
            step.signal, step.value, step.trace_id
        ));
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WorstStep;
    use crate::summary::{AttentionSession, AttentionSummary};

    #[test]
    fn attention_goes_before_scores() {
        let worst = WorstSession {
            session_id: "w".into(),
            project_id: None,
            agent_reliability: Some(0.25),
            agent_consistency: None,
            traces: 2,
            flagged_traces: Vec::new(),
            worst_step: Some(WorstStep {
                trace_id: "t".into(),
                signal: "coherence".into(),
                value: 0.1,
            }),
        };
        let mut summary = Summary {
            worst_sessions: vec![worst],
            ..Summary::default()
        };
        let first = first_sessions(&summary, 5);
        assert_eq!(
            (first[0].place, first[0].why.as_str()),
            (1, "agent_reliability 0.2500; coherence 0.1000 in t")
        );
        summary.attention = Some(AttentionSummary {
            first: vec![AttentionSession {
                session_id: "a".into(),
                project_id: None,
                place: 1,
                attention: 0.9,
                traces: 3,
                parts: Vec::new(),
                why: "failed tool calls: 4".into(),
            }],
            ..AttentionSummary::default()
        });
        assert_eq!(first_sessions(&summary, 5)[0].session_id, "a");
        assert!(first_sessions(&summary, 0).is_empty());
    }
}
