//! What is asked of a judge: evidence, prompts, and the shape of a reply. Pure: nothing here knows a model or the network.

mod evidence;
mod prompt;
mod reply_shape;

pub use evidence::{ContextOverflow, Evidence, WhenTooLong};
pub use prompt::PromptError;
pub(crate) use prompt::{Prompt, in_stored_order, prompt};
pub(crate) use reply_shape::{Field, Kind, Member, MemberKind};
pub use reply_shape::{ReplyFault, ReplyShape, StageReply};
