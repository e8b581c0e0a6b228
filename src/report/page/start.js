// A part of the script of the page; page.rs puts list.js, session.js and start.js together.
// The fields.
const fields = () => {
  at('q').value = state.q;
  order.value = ofSignals.some(of => of.name === state.sort) ? state.sort : '';
  for (const filter of filters) {
    const text = state.filter.get(filter.name);
    filter.select.value = text === undefined ? '' : String(text);
  }
};
for (const filter of filters) {
  const option = (value, label) => make('option', { value }, label);
  const label = text => `${cut(filter.shown(filter.source.texts[text]))} (${grouped(filter.counts[text])})`;
  const options = filter.order.map(text => option(String(text), label(text)));
  if (filter.unknown) options.unshift(option('-1', filter.name === 'first_signal' ? 'nothing unusual' : 'not known'));
  const some = filter.order.length < filter.source.texts.length;
  filter.select = make('select', { 'data-filter': filter.name,
    title: some && `The ${MOST_CHOICES} most frequent; search finds the others` }, option('', 'any'), ...options);
  filter.select.addEventListener('change', () => {
    if (filter.select.value === '') state.filter.delete(filter.name);
    else state.filter.set(filter.name, Number(filter.select.value));
    state.page = 0;
    change();
  });
  at('fields').append(make('label', null, filter.label, filter.select));
}
// Labels of shares begin with what they are of.
const ordered = (name, label) => label === name ? name : `${name}: ${label.startsWith('of ') ? 'share ' : ''}${label}`;
const order = make('select', { 'data-order': true }, make('option', { value: '' }, 'by a column'),
  ...ofSignals.map(of => make('option', { value: of.name }, ordered(of.label, labels.get(of.name)))));
order.addEventListener('change', () => {
  [state.sort, state.down, state.page] = [order.value || usual, order.value !== '', 0];
  change();
});
if (ofSignals.length) at('fields').append(make('label', null, 'Order', order));
at('q').addEventListener('input', () => {
  state.q = at('q').value;
  state.page = 0;
  change();
});
at('reset').addEventListener('click', () => {
  Object.assign(state, { q: '', sort: usual, down: false, lost: [], page: 0 });
  state.filter.clear();
  fields();
  change();
  at('q').focus();
});
at('csv').addEventListener('click', save);
at('sql').setAttribute('aria-expanded', 'false');
at('sql').addEventListener('click', () => {
  at('query').hidden = !at('query').hidden;
  at('sql').setAttribute('aria-expanded', String(!at('query').hidden));
  if (!at('query').hidden) showQuery();
});
document.addEventListener('click', event => {
  const link = event.target.closest && event.target.closest('a[href^="#session="]');
  if (!link) return;
  const tr = link.closest('tr');
  cameFrom = { link, row: tr && tr.dataset.row };
  // The address does not change where it is this session's already.
  if (link.getAttribute('href') === location.hash) show();
});
document.addEventListener('keydown', event => {
  const typing = event.target.closest && event.target.closest('input, select, textarea');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    at('q').focus();
  } else if (event.key === 'Escape' && state.session !== null) {
    event.preventDefault();
    close();
  }
});
addEventListener('hashchange', () => {
  if (!readAddress()) return;
  fields();
  find();
  draw();
  say();
  show();
});
for (const code of document.querySelectorAll('.command > code')) {
  code.parentElement.replaceWith(copyable(code.textContent));
}

const linked = readAddress();
at('finder').hidden = false;
fields();
find();
draw();
say();
show();
// A link into the list shows the list, and not the page's beginning.
if (linked && state.session === null) at('list').scrollIntoView();
// When all is loaded, the browser goes to the element of the address, and takes the focus away.
if (state.session !== null) addEventListener('load', () => setTimeout(show));
