//! Tests of asking, with a judge in the same process.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::conversation::{Case, Catalogue, ConversationJudge, JudgeConfig, RunBars};
use crate::judge::{
    BreakerRules, Budget, Call, CallError, CallErrorKind, Caps, Judge, Ledger, PriceTable,
    ProviderSettings, RateGate, RateLimits, Reply, Retries, ServiceParts,
};
use crate::trace::SessionKey;

type Answers = fn(&Call) -> Result<Reply, CallError>;

/// Answers as it is told, and remembers of each call whether it had a format.
struct Script {
    answers: Answers,
    formats: Mutex<Vec<bool>>,
}

impl Script {
    fn new(answers: Answers) -> Arc<Self> {
        Arc::new(Self {
            answers,
            formats: Mutex::default(),
        })
    }

    fn formats(&self) -> Vec<bool> {
        self.formats.lock().unwrap().clone()
    }
}

#[async_trait]
impl Judge for Script {
    async fn ask(&self, call: &Call) -> Result<Reply, CallError> {
        self.formats.lock().unwrap().push(call.format.is_some());
        (self.answers)(call)
    }

    fn endpoint(&self, _: &str) -> String {
        "here".into()
    }
}

fn service(script: Option<&Arc<Script>>, ledger: &Path, caps: Caps) -> JudgeService {
    JudgeService::new(ServiceParts {
        judge: script.map(|script| Arc::clone(script) as Arc<dyn Judge>),
        batches: None,
        endpoint: Arc::new(|_: &str| "here".to_owned()),
        ledger: Arc::new(Ledger::open(ledger).unwrap()),
        budget: Arc::new(Budget::new(caps)),
        gate: Arc::new(RateGate::new(RateLimits::default())),
        prices: PriceTable::with(&[]).unwrap(),
        retries: Retries::default(),
        breaker: BreakerRules::default(),
        concurrency: 4,
        timeout: std::time::Duration::from_secs(10),
        deadline: None,
        secrets: ProviderSettings::default().secrets(),
    })
}

fn request(config: JudgeConfig) -> ConversationRequest {
    ConversationRequest {
        judge: ConversationJudge::new(config, &Catalogue::built_in()).unwrap(),
        bars: RunBars::default(),
        model: "openai/judge".into(),
        temperature: crate::judge::Temperature::Usual(0.2),
        max_output_tokens: 100,
        rounds: 1,
        anew: false,
    }
}

fn conversation(texts: &[&str]) -> Conversation {
    let turns = (0..).zip(texts).map(|(at, text)| {
        let turn = json!({"turn_index": at, "role": "user", "content": text});
        serde_json::from_value(turn).unwrap()
    });
    Conversation {
        key: SessionKey {
            project_id: None,
            session_id: "s".into(),
        },
        traces: Some(1),
        case: Case::default(),
        turns: turns.collect(),
        set_aside: None,
    }
}

fn said(text: String) -> Result<Reply, CallError> {
    Ok(Reply {
        text,
        model: "judge-1".into(),
        usage: None,
        cut_off: false,
    })
}

fn good(_: &Call) -> Result<Reply, CallError> {
    let block = json!({"score": 4, "justification": "j", "failure_code": null, "turns": []});
    let catalogue = Catalogue::built_in();
    let blocks = catalogue
        .defaults()
        .map(|metric| (metric.name.clone(), block.clone()));
    said(serde_json::Value::Object(blocks.collect()).to_string())
}

fn fails(kind: CallErrorKind) -> Result<Reply, CallError> {
    Err(CallError {
        kind,
        message: "no".into(),
        retry_after: None,
        usage: None,
    })
}

/// Judges one after the other, as one run.
fn judge(
    request: &ConversationRequest,
    service: &JudgeService,
    conversations: Vec<Conversation>,
) -> Vec<JudgedConversation> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    conversations
        .into_iter()
        .map(|conversation| {
            let judged = judge_one(request, service, conversation);
            runtime.block_on(judged).unwrap()
        })
        .collect()
}

#[test]
fn a_refused_format_is_asked_for_once_and_a_replay_finds_the_plain_answers() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let script = Script::new(|call| match call.format {
        Some(_) => fails(CallErrorKind::FormatRejected),
        None if call.user.contains("this JSON schema") => good(call),
        None => said("no schema anywhere".into()),
    });
    let request = request(JudgeConfig::default());
    let both = || vec![conversation(&["one"]), conversation(&["two"])];
    let live = service(Some(&script), &ledger, Caps::default());
    let judged = judge(&request, &live, both());
    assert_eq!(script.formats(), [true, false, false]);
    drop(live);
    let replayed = judge(&request, &service(None, &ledger, Caps::default()), both());
    for (live, replayed) in judged.iter().zip(&replayed) {
        assert_eq!((live.status, live.score()), (Status::Success, Some(0.8)));
        assert_eq!(live.verdict, replayed.verdict);
        assert_eq!(live.request_hash, replayed.request_hash);
        let (live, replayed) = (
            live.answer.as_ref().unwrap(),
            replayed.answer.as_ref().unwrap(),
        );
        assert_eq!(live.taken, replayed.taken);
        assert!(live.taken.latency_ms.is_some());
    }
    assert!(judged[0].request_hash.is_some());
    assert_ne!(judged[0].request_hash, judged[1].request_hash);
}

#[test]
fn whatever_goes_wrong_is_no_score() {
    let none = Caps {
        calls: Some(0),
        ..Caps::default()
    };
    let short = JudgeConfig {
        max_input_tokens: Some(1),
        ..JudgeConfig::default()
    };
    let normal = JudgeConfig::default;
    let broken: Answers = |_| said("{".into());
    let refused: Answers = |_| fails(CallErrorKind::Refused);
    for (config, caps, answers, text, status, fault, calls) in [
        (
            normal(),
            none,
            good as Answers,
            "hi",
            Status::Pending,
            None,
            0,
        ),
        (
            normal(),
            Caps::default(),
            refused,
            "hi",
            Status::Failed,
            Some(JudgeError::LlmCallFailed),
            1,
        ),
        (
            normal(),
            Caps::default(),
            broken,
            "hi",
            Status::Failed,
            Some(JudgeError::InvalidJson),
            1,
        ),
        (
            short,
            Caps::default(),
            good as Answers,
            "hi",
            Status::Failed,
            Some(JudgeError::TranscriptTooLong),
            0,
        ),
        (
            normal(),
            Caps::default(),
            good as Answers,
            "",
            Status::Failed,
            None,
            0,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = Script::new(answers);
        let service = service(Some(&script), &folder.path().join("ledger.db"), caps);
        let texts = if text.is_empty() { vec![] } else { vec![text] };
        let judged = judge(&request(config), &service, vec![conversation(&texts)]);
        let one = &judged[0];
        assert_eq!((one.status, one.score()), (status, None), "{}", one.reason);
        assert_eq!(one.verdict.as_ref().and_then(|v| v.judge_error), fault);
        let has_call = !text.is_empty() && fault != Some(JudgeError::TranscriptTooLong);
        assert_eq!(one.request_hash.is_some(), has_call, "{}", one.reason);
        let passed = (status != Status::Pending).then_some(false);
        assert_eq!(one.case_passed(), passed, "{}", one.reason);
        assert_eq!(script.formats().len(), calls, "{}", one.reason);
        let mut tally = Tally::default();
        tally.add(one, 0.75);
        let (summary, distribution) = tally.finish(&request(JudgeConfig::default()));
        assert_eq!((summary.average, distribution.mean()), (None, None));
        assert_eq!(summary.failed + summary.pending, 1);
        assert!(!summary.complete());
    }
}

#[test]
fn reasons_name_what_stands_out() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::new(good);
    let service = service(
        Some(&script),
        &folder.path().join("ledger.db"),
        Caps::default(),
    );
    let judged = judge(
        &request(JudgeConfig::default()),
        &service,
        vec![conversation(&["hi"])],
    );
    assert_eq!(judged[0].reason, "no metric stands out");
    let mut verdict = judged[0].verdict.clone().unwrap();
    let named = |metric: &str, score| crate::conversation::Highlight {
        metric: metric.into(),
        score,
    };
    verdict.highlights.weakest = Some(named("a", 1));
    verdict.highlights.strongest = Some(named("b", 5));
    verdict.highlights.failed_binary = vec!["c".into()];
    assert_eq!(
        reason_of(&verdict),
        "weakest a (1 of 5), failed c, strongest b (5 of 5)"
    );
}
