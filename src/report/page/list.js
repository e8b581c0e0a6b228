// A part of the script of the page; page.rs puts list.js, session.js and start.js together.
// The list of sessions: search, sort, filters, pages, and the session that the address names. All text of data goes in
// as text, never as markup.
const ROWS = 50, MOST_CHOICES = 200, SCALE = 10000;
const data = JSON.parse(document.getElementById('data').textContent);
const count = data.session.length;
const at = id => document.getElementById(id);

const make = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
};
const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, ',');
const plural = (n, one) => `${grouped(n)} ${n === 1 ? one : one + 's'}`;
const words = name => name.replaceAll('_', ' ');
const coded = (column, row) => column && column.rows[row] >= 0 ? column.texts[column.rows[row]] : null;
const listed = (column, row) => column ? column.rows[row].map(text => column.texts[text]) : [];
const project = row => coded(data.project, row);
const why = row => listed(data.why, row).join('; ');
const score = value => value === null || value === undefined ? null : (value / SCALE).toFixed(4);
const time = row => data.started[row] === null ? null : new Date(data.started[row] * 1000).toISOString();
const labels = new Map(data.labels);

// What is the same in all rows, and the path of a file, would only fill the table; filters and search have them.
const inTable = data.slices.filter(slice => slice.texts.length > 1 && slice.name !== 'file');

// Columns. `key` gives what is sorted by, null for none; `sql` what a query calls it.
const number = column => row => column[row];
const columns = [
  data.attention && { name: 'place', label: 'Place', n: true, key: row => row, sql: 'a.place' },
  { name: 'session', label: 'Session', key: row => data.session[row].toLowerCase(), sql: 'lower(s.session_id)' },
  data.why && { name: 'why', label: 'Why', fixed: true },
  data.attention && { name: 'attention', label: 'Attention', n: true, down: true, sql: 'a.attention',
    key: number(data.attention) },
  { name: 'traces', label: 'Traces', n: true, down: true, key: number(data.traces), sql: 's.traces' },
  ...['agent_reliability', 'agent_consistency'].map(name => data[name] &&
    { name, label: words(name), n: true, sql: 's.' + name, key: number(data[name].value), above: data[name].better_than }),
  data.conversation && { name: 'conversation', label: 'conversation', n: true, sql: 'v.overall_score',
    key: number(data.conversation) },
  { name: 'started', label: 'Started', down: true, key: number(data.started), sql: 's.first_started_at' },
  (inTable.length || (data.tags && data.tags.texts.length)) && { name: 'slices', label: 'Slices', fixed: true },
].filter(Boolean);
// Signals: a column of one stands in the table while the list is ordered by it.
const shareOrCount = (signal, row) => {
  const value = signal.rows[row];
  if (value === null) return null;
  return signal.is_share ? `${Math.floor(value / 100)} %` : grouped(value);
};
const ofSignals = data.signals.map(signal => ({ name: signal.name, label: words(signal.name), n: true, down: true,
  signal, key: number(signal.rows), sql: `${signal.of_order ? 'a' : 's'}.${signal.name}` }));
const column = name => [...columns, ...ofSignals].find(column => column.name === name && !column.fixed);
// Without places, rows stand as they come: by all of their scores, or as in the table.
const usual = data.attention ? 'place' : 'list';

// Filters: a slice with several values, and the signal that counts most.
const filters = [];
const choices = (texts, rows) => {
  const counts = new Array(texts.length).fill(0);
  for (const row of rows) for (const text of [].concat(row)) if (text >= 0) counts[text]++;
  return counts;
};
const addFilter = (name, label, source, shown, sql) => {
  const counts = choices(source.texts, source.rows);
  const unknown = source.rows.some(row => row === -1 || row.length === 0);
  if (source.texts.length + (unknown ? 1 : 0) < 2) return;
  const order = source.texts.map((_, text) => text).sort((a, b) => counts[b] - counts[a]);
  filters.push({ name, label, source, shown, sql, unknown, counts, order: order.slice(0, MOST_CHOICES) });
};
if (data.first_signal) {
  const shown = text => labels.has(text) ? `${words(text)}: ${labels.get(text)}` : words(text);
  addFilter('signal', 'First signal', data.first_signal, shown, text => `a.first_signal ${is(text)}`);
}
for (const slice of data.slices) {
  addFilter(slice.name, words(slice.name), slice, text => text, text => `s.${slice.name} ${is(text)}`);
}
if (data.tags) {
  addFilter('tag', 'tag', data.tags, text => text, text => text === null
    ? '(s.tags IS NULL OR cardinality(s.tags) = 0)' : `array_has(s.tags, ${literal(text)})`);
}

const literal = text => `'${text.replaceAll("'", "''")}'`;
const is = text => text === null ? 'IS NULL' : `= ${literal(text)}`;
const shell = word => {
  if (/^[\w\-+=:,.\/@%]+$/.test(word)) return word;
  if (word.includes('!')) return `'${word.replaceAll("'", "'\\''")}'`;
  return `"${word.replace(/["\\$`]/g, '\\$&')}"`;
};
const ofRun = query => `nightmill sql ${shell(query)} --run ${shell(data.run)}`;

// What is shown now. `filter` holds numbers of texts, -1 for rows without one.
const state = { q: '', sort: usual, down: false, filter: new Map(), lost: [], page: 0, session: null, project: null };
let rows = [];
let lower = null;

const terms = () => state.q.toLowerCase().split(/\s+/).filter(Boolean);
const search = wanted => {
  lower = lower || data.session.map(id => id.toLowerCase());
  const sources = [data.project, data.why, ...data.slices.filter(isColumn), data.tags].filter(Boolean)
    .map(({ rows, texts }) => ({ rows, texts: texts.map(text => text.toLowerCase()) }));
  return wanted.map(term => {
    // Each text is looked at once, however many rows have it.
    const hits = sources.map(({ rows, texts }) => ({ rows, hit: texts.map(text => text.includes(term)) }))
      .filter(({ hit }) => hit.includes(true));
    return row => lower[row].includes(term) || hits.some(({ rows, hit }) => {
      const cell = rows[row];
      return typeof cell === 'number' ? cell >= 0 && hit[cell] : cell.some(text => hit[text]);
    });
  });
};

const find = () => {
  const tests = search(terms());
  for (const filter of filters) {
    if (!state.filter.has(filter.name)) continue;
    const wanted = state.filter.get(filter.name), cells = filter.source.rows;
    tests.push(row => {
      const cell = cells[row];
      return typeof cell === 'number' ? cell === wanted : wanted === -1 ? cell.length === 0 : cell.includes(wanted);
    });
  }
  rows = [];
  for (let row = 0; row < count; row++) if (tests.every(test => test(row))) rows.push(row);
  const by = column(state.sort);
  if (by && by.name !== 'place') {
    const keys = new Array(count), sign = state.down ? -1 : 1;
    for (const row of rows) keys[row] = by.key(row);
    rows.sort((a, b) => {
      const x = keys[a], y = keys[b];
      if (x === y) return a - b;
      if (x === null) return 1;
      if (y === null) return -1;
      return (x < y ? -sign : sign);
    });
  } else if (by && state.down) {
    rows.reverse();
  }
  const pages = Math.max(1, Math.ceil(rows.length / ROWS));
  state.page = Math.min(state.page, pages - 1);
};

// The address.
const listPart = () => {
  const parts = [];
  if (state.q) parts.push(['q', state.q]);
  if (state.sort !== usual || state.down) parts.push(['sort', (state.down ? '-' : '') + state.sort]);
  for (const filter of filters) {
    const text = state.filter.get(filter.name);
    if (text !== undefined) parts.push([filter.name, text === -1 ? '' : filter.source.texts[text]]);
  }
  if (state.page) parts.push(['page', state.page + 1]);
  return parts;
};
const address = (session, ofProject) => {
  const parts = session === null ? [] : [['session', session]];
  if (session !== null && ofProject !== null && data.repeated) parts.push(['project', ofProject]);
  parts.push(...listPart());
  return '#' + parts.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
};
const remember = () => {
  const hash = address(state.session, state.project);
  try {
    history.replaceState(null, '', hash === '#' ? location.pathname + location.search : hash);
  } catch {
    location.hash = hash;
  }
};
const decoded = text => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
/** Takes the address in; whether it says anything of the list or of a session. */
const readAddress = () => {
  const hash = location.hash.slice(1);
  if (!hash.includes('=')) return false;
  const given = new Map(hash.split('&').map(part => {
    const [name, ...value] = part.split('=');
    return [name, decoded(value.join('='))];
  }));
  state.q = given.get('q') || '';
  const sort = given.get('sort') || usual, name = sort.replace(/^-/, '');
  state.sort = column(name) ? name : usual;
  state.down = sort.startsWith('-') && state.sort === name;
  state.filter.clear();
  for (const filter of filters) {
    if (!given.has(filter.name)) continue;
    const text = given.get(filter.name), code = text === '' ? -1 : filter.source.texts.indexOf(text);
    if (text === '' || code >= 0) state.filter.set(filter.name, code);
  }
  // A link of another run may name what this one does not have.
  const known = ['q', 'page', 'session', 'project', ...state.filter.keys()];
  if (state.sort === name) known.push('sort');
  state.lost = [...given].filter(([name]) => !known.includes(name)).map(([name, text]) => `${name} ${cut(text)}`);
  state.page = Math.max(0, (parseInt(given.get('page'), 10) || 1) - 1);
  state.session = given.has('session') ? given.get('session') : null;
  state.project = given.has('project') ? given.get('project') : null;
  return true;
};

// The table.
const slicesOf = row => [
  ...inTable.map(slice => [slice.name, coded(slice, row)]).filter(([, text]) => text !== null)
    .map(([name, text]) => `${words(name)} ${text}`),
  ...listed(data.tags, row).map(tag => '#' + tag),
];
const cut = text => text.length > 120 ? text.slice(0, 120) + '…' : text;
const shown = text => make('bdi', null, cut(text));
const small = text => make('small', null, text);
const cells = {
  place: row => [grouped(row + 1)],
  session: row => [
    make('a', { href: address(data.session[row], project(row)), class: 'id' }, shown(data.session[row])),
    project(row) === null ? null : make('small', null, 'project ', shown(project(row))),
  ],
  why: row => [make('bdi', null, why(row))],
  attention: row => [score(data.attention[row])],
  traces: row => [grouped(data.traces[row]),
    data.flagged && data.flagged[row] ? small(`${grouped(data.flagged[row])} flagged`) : null],
  conversation: row => [score(data.conversation[row]) || '–'],
  started: row => [time(row) === null ? '–'
    : make('time', { datetime: time(row) }, time(row).slice(0, 16).replace('T', ' '))],
  slices: row => slicesOf(row).map(text => small(shown(text))),
};
const cell = (of, row) => {
  if (of.signal) return [shareOrCount(of.signal, row) || '–'];
  if (!of.above) return cells[of.name](row);
  const value = score(of.key(row));
  return value === null ? ['–'] : [value, small(`better than ${Math.floor(of.above[row] / 100)} %`)];
};
const isCurrent = (id, row) => id === state.session && (state.project === null || project(row) === state.project);
const current = () => state.session === null ? -1 : data.session.findIndex(isCurrent);

const draw = () => {
  const ordered = ofSignals.filter(of => of.name === state.sort);
  const drawn = [...columns.slice(0, 2), ...ordered, ...columns.slice(2)];
  const head = make('tr', { role: 'row' });
  for (const of of drawn) {
    const sorted = of.name === state.sort;
    const th = make('th', { scope: 'col', role: 'columnheader', class: of.n ? 'n' : null,
      'aria-sort': sorted && (state.down ? 'descending' : 'ascending') });
    if (of.fixed) {
      th.append(of.label);
    } else {
      const arrow = sorted ? (state.down ? ' ▼' : ' ▲') : null;
      const button = make('button', { type: 'button', 'data-sort': of.name }, of.label, arrow);
      button.addEventListener('click', () => {
        if (state.sort === of.name) state.down = !state.down;
        else [state.sort, state.down] = [of.name, Boolean(of.down)];
        state.page = 0;
        change();
        at('rows').querySelector(`[data-sort="${of.name}"]`).focus();
      });
      th.append(button);
    }
    head.append(th);
  }
  const opened = current();
  const body = make('tbody', { role: 'rowgroup' });
  for (const row of rows.slice(state.page * ROWS, (state.page + 1) * ROWS)) {
    const tr = make('tr', { role: 'row', 'data-row': row, class: row === opened ? 'current' : null });
    for (const of of drawn) {
      const label = of.name === 'session' ? null : of.label;
      tr.append(make('td', { role: 'cell', class: of.n ? 'n' : of.name, 'data-label': label }, ...cell(of, row)));
    }
    body.append(tr);
  }
  const table = make('table', { class: 'list', role: 'table', 'aria-label': 'Sessions' },
    make('thead', { role: 'rowgroup' }, head), body);
  at('rows').replaceChildren(...(rows.length ? [table] : []));

  const pages = Math.max(1, Math.ceil(rows.length / ROWS));
  const step = (label, to, possible) => {
    const button = make('button', { type: 'button', disabled: !possible }, label);
    button.addEventListener('click', () => {
      state.page = to;
      change();
      at('list').scrollIntoView();
      at('list').focus({ preventScroll: true });
    });
    return button;
  };
  at('pages').hidden = pages < 2;
  at('pages').replaceChildren(
    step('First', 0, state.page > 0), step('Previous', state.page - 1, state.page > 0),
    make('span', null, `page ${grouped(state.page + 1)} of ${grouped(pages)}`),
    step('Next', state.page + 1, state.page < pages - 1), step('Last', pages - 1, state.page < pages - 1));
};

const say = () => {
  const all = rows.length === count;
  let text = all ? `${plural(count, 'session')}` : `${grouped(rows.length)} of ${plural(count, 'session')}`;
  if (!rows.length) text += ': nothing has all of these words and slices';
  else if (data.total > count && !all) text += ' listed here; the command looks at all';
  if (state.lost.length) text += `; not in this run, and left out: ${state.lost.join(', ')}`;
  if (at('hits').textContent !== text) at('hits').textContent = text;
  at('reset').disabled = all && state.sort === usual && !state.down && !state.q && !state.lost.length;
  at('csv').disabled = !rows.length;
};

const change = () => {
  find();
  draw();
  say();
  if (!at('query').hidden) showQuery();
  remember();
};

// The file of a session is no column of a table.
const isColumn = slice => slice.name !== 'file';
// The same hits as a query.
const from = () => {
  const same = name => `${name}.session_id = s.session_id AND ${name}.project_id IS NOT DISTINCT FROM s.project_id`;
  let text = 'FROM sessions s';
  if (data.attention) text += ` JOIN attention a ON ${same('a')}`;
  if (data.conversation) text += ` LEFT JOIN judge_verdicts v ON ${same('v')}`;
  return text;
};
const query = () => {
  const there = names => names.filter(Boolean);
  const columns = there([data.attention && 'a.place', 's.session_id', 's.project_id', data.attention && 'a.why',
    's.traces', 's.agent_reliability', 's.agent_consistency', data.conversation && 'v.overall_score',
    's.first_started_at']);
  const slices = data.slices.filter(isColumn).map(slice => `s.${slice.name}`);
  const searched = there(['s.session_id', 's.project_id', data.why && 'a.why', ...slices]);
  const conditions = terms().map(term => {
    const any = searched.map(name => `strpos(lower(${name}), ${literal(term)}) > 0`);
    // No tag holds a line break.
    if (data.tags) any.push(`strpos(lower(array_to_string(s.tags, chr(10))), ${literal(term)}) > 0`);
    return `(${any.join(' OR ')})`;
  });
  for (const filter of filters) {
    const text = state.filter.get(filter.name);
    if (text !== undefined && isColumn(filter)) conditions.push(filter.sql(text === -1 ? null : filter.source.texts[text]));
  }
  const by = column(state.sort), last = data.attention ? 'a.place' : 's.session_id, s.project_id';
  const rising = there(['s.agent_reliability', 's.agent_consistency', data.conversation && 'v.overall_score']);
  const lowest = rising.map(name => `${name} ASC NULLS LAST`).join(', ');
  const order = by ? `${by.sql} ${state.down ? 'DESC' : 'ASC'} NULLS LAST` : data.order === 'scores' && lowest;
  const orders = there([order, by && by.name === 'place' ? null : last]).join(', ');
  const where = conditions.length ? ' WHERE ' + conditions.join(' AND ') : '';
  return `SELECT ${columns.join(', ')} ${from()}${where} ORDER BY ${orders}`;
};
const copyable = line => {
  const code = make('code', null, line), button = make('button', { type: 'button' }, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = 'Selected: copy it';
    }
  });
  return make('div', { class: 'command' }, code, button);
};
const showQuery = () => {
  const all = 'It looks at all sessions of the run, listed here or not.';
  const same = 'It finds the same sessions.', left = 'Tables know no files: it leaves out the filter by file.';
  const found = state.filter.has('file') ? left : data.total > count ? all : same;
  const note = `${found} Run it where the run was made.`;
  at('query').replaceChildren(make('p', { class: 'muted' }, note), copyable(ofRun(query())));
};

// CSV. A cell of text that a spreadsheet would run as a formula gets a sign before it that makes it text.
const csv = () => {
  const quoted = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const inert = text => /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  const text = value => value === null || value === undefined ? '' : quoted(inert(value));
  const scores = name => data[name] && [name, row => score(data[name].value[row]) || ''];
  const columns = [
    ['session_id', row => text(data.session[row])],
    ['project_id', row => text(project(row))],
    ['traces', row => String(data.traces[row])],
    scores('agent_reliability'),
    scores('agent_consistency'),
    data.conversation && ['conversation', row => score(data.conversation[row]) || ''],
    ['first_started_at', row => time(row) || ''],
    data.attention && ['place', row => String(row + 1)],
    data.attention && ['attention', row => score(data.attention[row])],
    data.why && ['why', row => text(why(row))],
    ...data.slices.map(slice => [slice.name, row => text(coded(slice, row))]),
    data.tags && ['tags', row => text(listed(data.tags, row).join('; '))],
  ].filter(Boolean);
  const lines = [columns.map(([name]) => name).join(',')];
  for (const row of rows) lines.push(columns.map(([, cell]) => cell(row)).join(','));
  return lines.join('\r\n') + '\r\n';
};
const save = () => {
  const url = URL.createObjectURL(new Blob([csv()], { type: 'text/csv' }));
  make('a', { href: url, download: 'sessions.csv' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
};
