// A part of the script of the page; page.rs puts list.js, session.js and start.js together.
// A session.
const withTexts = new Map();
for (const details of document.querySelectorAll('details.session')) withTexts.set(Number(details.dataset.row), details);
let cameFrom = null;
const OWN = ['trace_id', 'session_id', 'project_id', 'started_at', 'input', 'output'];
const name = text => OWN.includes(text) ? text : `"${text.replaceAll('"', '""')}"`;
const ofSession = (row, session, ofProject) => `${name(session)} = ${literal(data.session[row])}`
  + (project(row) === null ? '' : ` AND ${name(ofProject)} = ${literal(project(row))}`);
const figures = pairs => make('dl', { class: 'figures' }, ...pairs
  .filter(([, value]) => value !== null && value !== undefined)
  .map(([label, value]) => make('div', null, make('dt', null, label), make('dd', null, value))));
const bold = text => make('p', null, make('b', null, text));
const ranked = (of, row) => {
  const value = of && score(of.value[row]);
  return value && `${value}, better than ${Math.floor(of.better_than[row] / 100)} % of sessions`;
};
const panel = row => {
  const title = make('h3', { id: 'opened-name', class: 'id' }, make('bdi', null, data.session[row]));
  const parts = [make('div', { class: 'row' }, title, closer())];
  if (data.why) {
    const reasons = listed(data.why, row).map(part => make('li', null, part));
    parts.push(bold('Why it has its place.'), make('ul', null, ...reasons));
  }
  parts.push(figures([
    ['place', data.attention && `${grouped(row + 1)} of ${grouped(data.total)}`],
    ['project', project(row)],
    ['attention', data.attention && score(data.attention[row])],
    ['traces', grouped(data.traces[row])],
    ['flagged traces', data.flagged && data.flagged[row] !== null ? grouped(data.flagged[row]) : null],
    ['agent reliability', ranked(data.agent_reliability, row)],
    ['agent consistency', ranked(data.agent_consistency, row)],
    ['conversation', data.conversation && score(data.conversation[row])],
    ['started', time(row)],
    ...data.slices.map(slice => [words(slice.name), coded(slice, row)]),
    ['tags', data.tags && listed(data.tags, row).join(', ') || null],
  ]));
  const signals = data.signals.filter(signal => signal.rows[row] !== null);
  if (signals.length) {
    const what = ({ is_share, name }) => is_share && labels.has(name) ? ' ' + labels.get(name) : '';
    const pair = signal => [words(signal.name), shareOrCount(signal, row) + what(signal)];
    parts.push(bold('Its signals.'), figures(signals.map(pair)));
  }
  const note = `Texts are in this page for the first ${plural(withTexts.size, 'session')}. The others are shown by:`;
  parts.push(make('p', { class: 'muted' }, note));
  if (data.texts) {
    const of = data.texts, columns = of.columns.map(name).join(', ');
    const condition = ofSession(row, of.session_id, of.project_id);
    const select = table => `SELECT ${columns} FROM ${literal(table)} WHERE ${condition}`;
    const query = `${of.tables.map(select).join(' UNION ALL ')} ORDER BY ${name(of.started_at)}`;
    const flags = of.flags.map(([flag, value]) => ` ${flag} ${shell(value)}`).join('');
    parts.push(copyable(`nightmill sql ${shell(query)} --format json${flags}`));
  }
  const scores = ['trace_id', 'started_at', ...data.score_columns, 'step_risk', 'flagged', 'status'].join(', ');
  const condition = ofSession(row, 'session_id', 'project_id');
  parts.push(copyable(ofRun(`SELECT ${scores} FROM traces WHERE ${condition} ORDER BY started_at, trace_id`)));
  return parts;
};
const closer = () => {
  const button = make('button', { type: 'button' }, 'Close');
  button.addEventListener('click', close);
  return button;
};
const show = () => {
  const row = current(), opened = at('opened');
  opened.hidden = true;
  if (state.session === null) return;
  if (row >= 0 && withTexts.has(row)) {
    const details = withTexts.get(row);
    details.open = true;
    details.scrollIntoView();
    details.querySelector('summary').focus({ preventScroll: true });
    return;
  }
  const unlisted = () => make('h3', { id: 'opened-name' }, 'This page does not list the session ', shown(state.session));
  opened.replaceChildren(...(row >= 0 ? panel(row) : [make('div', { class: 'row' }, unlisted(), closer())]));
  opened.hidden = false;
  opened.scrollIntoView();
  opened.focus({ preventScroll: true });
};
const close = () => {
  const details = withTexts.get(current());
  if (details) details.open = false;
  at('opened').hidden = true;
  [state.session, state.project] = [null, null];
  draw();
  remember();
  // The row was drawn anew since; a link elsewhere is still there.
  const row = cameFrom && cameFrom.row !== null && at('rows').querySelector(`tr[data-row="${cameFrom.row}"] a`);
  (row || (cameFrom && document.contains(cameFrom.link) ? cameFrom.link : at('list'))).focus();
  cameFrom = null;
};
