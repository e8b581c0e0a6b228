//! Batch files of the program, through the batch endpoints and back.

use nightmill::judge::batch::{
    BatchLimits, BatchObject, BatchOutcome, BatchStatus, RequestFiles, ResultJoin, read_results,
};
use serde_json::Value;

use super::batch::{create, poll_to_end};
use super::{Client, chat};
use crate::scripted_judge::{Answer, BatchEnd, BatchPlan, Reply, ScriptedJudge};

fn download(client: &mut Client, file_id: &str) -> Vec<u8> {
    client.send("GET", &format!("/v1/files/{file_id}/content"), "x/y", b"");
    client.receive().2
}

#[test]
fn requests_come_back_as_replies_failures_and_expiries() {
    let judge = ScriptedJudge::start(|asked| match asked.user.as_str() {
        "4" => Answer::status(400, &[], "too long"),
        user => Answer::Reply(Reply::from(format!("re {user}")).usage(9, 2, 3)),
    });
    judge.plan_batches(|number| BatchPlan {
        end: match number {
            0 => BatchEnd::Completed,
            _ => BatchEnd::Expired {
                answered: 3,
                silent: 1,
            },
        },
        stray_lines: vec!["{".to_owned()],
        ..BatchPlan::default()
    });
    let limits = BatchLimits {
        lines: 8,
        ..BatchLimits::default()
    };
    let mut files = RequestFiles::new(limits, |_| Ok(Vec::new())).unwrap();
    let ids: Vec<String> = (0..14).map(|i| format!("{:032x}", i * 77)).collect();
    for (i, id) in ids.iter().enumerate() {
        files.push(id, &chat(&i.to_string())).unwrap();
    }
    let files = files.finish().unwrap();
    assert_eq!(files.iter().map(|f| f.lines).collect::<Vec<_>>(), [8, 6]);

    let mut client = Client::new(&judge);
    let mut join = ResultJoin::new(ids.iter().cloned());
    let (mut expired, mut bad) = (Vec::new(), 0);
    for (file, end) in files
        .iter()
        .zip([BatchStatus::Completed, BatchStatus::Expired])
    {
        let batch_id = create(&mut client, &file.writer);
        let (_, batch): (_, Value) = poll_to_end(&mut client, &batch_id);
        let batch = BatchObject::from_value(&batch).unwrap();
        assert_eq!((&batch.status, &batch.id), (&end, &batch_id));
        assert_eq!(batch.request_counts.total, file.lines as u64);
        for file_id in [batch.output_file_id, batch.error_file_id]
            .into_iter()
            .flatten()
        {
            let content = download(&mut client, &file_id);
            let summary = read_results(content.as_slice(), |result| {
                let result = join.take(result).expect("each result is news");
                let place = ids.iter().position(|id| *id == result.custom_id).unwrap();
                match result.outcome {
                    BatchOutcome::Reply(reply) => {
                        assert_eq!(reply.text, format!("re {place}"));
                        assert_eq!(
                            reply.usage.map(|u| (u.prompt, u.completion, u.cached)),
                            Some((9, 2, 3))
                        );
                        assert_eq!(reply.model.as_deref(), Some("test"));
                    }
                    BatchOutcome::Failed {
                        status, message, ..
                    } => {
                        assert_eq!(
                            (place, status, message.as_str()),
                            (4, Some(400), "too long")
                        );
                    }
                    BatchOutcome::Expired => expired.push(place),
                }
            });
            bad += summary.unwrap().bad;
        }
    }
    expired.sort_unstable();
    assert_eq!((expired, bad), (vec![11, 12], 2));
    let summary = join.finish();
    assert_eq!((summary.replied, summary.failed), (10, 3));
    assert_eq!(summary.missing, [ids[13].clone()]);
}
