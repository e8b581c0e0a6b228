//! Tests of a service beside another run.

use async_trait::async_trait;

use super::super::budget::Caps;
use super::super::call::tests::call;
use super::super::provider::ProviderSettings;
use super::super::rate::RateLimits;
use super::*;

const LABEL: CallLabel<'_> = CallLabel {
    metric: "confidence",
    stage: "score",
};

struct Yes;

#[async_trait]
impl Judge for Yes {
    async fn ask(&self, _: &Call) -> Result<Reply, CallError> {
        Ok(Reply {
            text: "yes".into(),
            model: "test-1".into(),
            usage: None,
            cut_off: false,
        })
    }

    fn endpoint(&self, _: &str) -> String {
        "here".into()
    }
}

#[test]
fn a_run_that_asks_without_end_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let brief = Duration::from_millis(100);
    let service = JudgeService::new(ServiceParts {
        judge: Some(Arc::new(Yes)),
        batches: None,
        endpoint: Arc::new(|_: &str| "here".to_owned()),
        ledger: Arc::new(Ledger::open(&path).unwrap()),
        budget: Arc::new(Budget::new(Caps::default())),
        gate: Arc::new(RateGate::new(RateLimits::default())),
        prices: PriceTable::with(&[]).unwrap(),
        retries: Retries {
            attempts: 1,
            others: brief,
            ..Retries::default()
        },
        breaker: BreakerRules::default(),
        concurrency: 1,
        timeout: brief,
        deadline: None,
        secrets: ProviderSettings::default().secrets(),
    });
    let (asked, hash) = (call("a"), call("a").hash("here"));
    let other = Ledger::open(&path).unwrap();
    let claim = other.claim(&hash).unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answer = runtime.block_on(service.answer(&asked, LABEL));
    assert_eq!(answer, Err(Unanswered::AskedElsewhere));
    assert!(Unanswered::AskedElsewhere.pending());
    let counts = service.counts();
    assert_eq!((counts.withheld, counts.sent), (1, 0));
    // While it waits it holds up no other question.
    let both = async {
        let other_call = call("b");
        tokio::join!(
            service.answer(&asked, LABEL),
            service.answer(&other_call, LABEL)
        )
    };
    let (first, second) = runtime.block_on(both);
    assert_eq!(first, Err(Unanswered::AskedElsewhere));
    assert_eq!(second.map(|reply| reply.text), Ok("yes".into()));

    drop(claim);
    let answer = runtime.block_on(service.answer(&asked, LABEL));
    assert_eq!(answer.map(|reply| reply.text), Ok("yes".into()));
}

/// Fails by script: none is an answer.
struct Comes(Mutex<Vec<Option<CallErrorKind>>>);

#[async_trait]
impl Judge for Comes {
    async fn ask(&self, call: &Call) -> Result<Reply, CallError> {
        let next = self.0.lock().unwrap().pop().flatten();
        match next {
            None => Yes.ask(call).await,
            Some(kind) => Err(CallError {
                kind,
                message: "connection refused".into(),
                retry_after: None,
                usage: None,
            }),
        }
    }

    fn endpoint(&self, _: &str) -> String {
        "here".into()
    }
}

#[test]
fn an_endpoint_that_was_there_is_waited_for_and_in_the_end_left_alone() {
    use CallErrorKind::NoConnection;
    for (away, comes_back) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
        let folder = tempfile::tempdir().unwrap();
        // The first call is answered; then nobody is there three times.
        let gone = [Some(NoConnection); 3].into_iter();
        let script = gone.chain([None]).collect();
        let service = JudgeService::new(ServiceParts {
            judge: Some(Arc::new(Comes(Mutex::new(script)))),
            batches: None,
            endpoint: Arc::new(|_: &str| "here".to_owned()),
            ledger: Arc::new(Ledger::open(&folder.path().join("ledger.db")).unwrap()),
            budget: Arc::new(Budget::new(Caps::default())),
            gate: Arc::new(RateGate::new(RateLimits::default())),
            prices: PriceTable::with(&[]).unwrap(),
            retries: Retries {
                attempts: 1,
                wait: Duration::from_millis(1),
                away,
                ..Retries::default()
            },
            breaker: BreakerRules::default(),
            concurrency: 1,
            timeout: Duration::from_secs(10),
            deadline: None,
            secrets: ProviderSettings::default().secrets(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let ask = |user| runtime.block_on(service.answer(&call(user), LABEL));
        assert!(ask("a").is_ok());
        let second = ask("b");
        assert_eq!(second.is_ok(), comes_back, "{second:?}");
        assert_eq!(service.stops().is_empty(), comes_back);
        let sent = service.counts().sent;
        if let Err(stopped) = second {
            assert!(matches!(stopped, Unanswered::Stopped(_)) && stopped.pending());
            assert_eq!(sent, 2);
            assert!(ask("c").is_err());
            assert_eq!(service.counts().sent, 2, "asked all the same");
        } else {
            assert_eq!(sent, 5);
        }
    }
}
