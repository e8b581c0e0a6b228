//! A conversation looked up in the ledger, without asking anybody.

use crate::conversation::{Case, ConversationRequest, RequestError, SchemaPlace, Turn};
use crate::judge::answers::Answers;
use crate::judge::{Call, Known, MOST_ROUNDS};
use crate::output::RunError;

/// What the ledger knows of a conversation.
#[derive(Debug)]
pub(crate) struct LookedUp {
    /// The call that is answered, or the one that would be made.
    pub call: Call,
    /// Tokens of its question, estimated.
    pub prompt_tokens: u64,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is a verdict.
    Answered,
    /// All rounds are answered, and none can be used: nothing is left to ask.
    UsedUp,
    /// The call would be made.
    Open,
}

/// Looks a conversation up. The schema may have been asked for as a format, or, where the endpoint does not take that, in the
/// prompt: nothing but the answers themselves tells which.
///
/// # Errors
/// [`RunError`]; inside, why no call can be made.
pub(crate) fn look_up(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    case: &Case,
    turns: &[Turn],
) -> Result<Result<LookedUp, RequestError>, RunError> {
    let build = |place: SchemaPlace, round: u32| -> Result<(Call, u64), RequestError> {
        let asked = request.judge.request(case, turns, place)?;
        let tokens = asked.estimated_tokens;
        Ok((request.call(asked, place, round), tokens))
    };
    let rounds = match request.anew {
        true => MOST_ROUNDS,
        false => request.rounds.max(1),
    };
    for round in 0..rounds {
        let mut open = None;
        let mut unusable = false;
        for place in [SchemaPlace::ResponseFormat, SchemaPlace::Prompt] {
            let (call, prompt_tokens) = match build(place, round) {
                Ok(built) => built,
                Err(e) => return Ok(Err(e)),
            };
            match answers.known(&call)? {
                Known::Answer(text) => {
                    let verdict = request.judge.verdict(case, turns, Ok(text.as_str()));
                    if verdict.judge_error.is_none() {
                        return Ok(Ok(LookedUp {
                            call,
                            prompt_tokens,
                            state: State::Answered,
                        }));
                    }
                    unusable = true;
                }
                // Then it is the prompt's turn.
                Known::FormatRefused(_) => {}
                Known::Nothing => {
                    open.get_or_insert((call, prompt_tokens));
                }
            }
        }
        if let Some((call, prompt_tokens)) = open.filter(|_| !unusable) {
            return Ok(Ok(LookedUp {
                call,
                prompt_tokens,
                state: State::Open,
            }));
        }
    }
    Ok(
        build(SchemaPlace::ResponseFormat, rounds - 1).map(|(call, prompt_tokens)| LookedUp {
            call,
            prompt_tokens,
            state: State::UsedUp,
        }),
    )
}
