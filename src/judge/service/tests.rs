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
        budget: Budget::new(Caps::default()),
        gate: RateGate::new(RateLimits::default()),
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
