'use strict';
(function () {
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const MINUS = '\u2212', DOT = ' \u00b7 ';

/* ---- words: everything goes through textContent, so no name of a run can be markup ---- */

const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function make(parent, tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
}

const round = (value, digits) => String(Number(value.toPrecision(digits))).replace('-', MINUS);

function duration(seconds) {
  if (!(seconds >= 0)) return '\u2013';
  if (seconds === 0) return '0 s';
  if (seconds < 1e-3) return round(seconds * 1e6, 3) + ' \u00b5s';
  if (seconds < 1) return round(seconds * 1e3, 3) + ' ms';
  if (seconds < 60) return round(seconds, 3) + ' s';
  const whole = Math.round(seconds), two = n => String(n).padStart(2, '0');
  if (whole < 3600) return Math.floor(whole / 60) + ' min ' + two(whole % 60) + ' s';
  return Math.floor(whole / 3600) + ' h ' + two(Math.floor(whole / 60) % 60) + ' min';
}

const many = (count, word) => count + ' ' + word + (count === 1 ? '' : 's');

/* ---- plots ---- */

function shape(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/* Steps of 1, 2 or 5 times a power of ten, about `want` of them. */
function ticks(low, high, want, whole) {
  const rough = (high - low) / want, power = Math.pow(10, Math.floor(Math.log10(rough)));
  let step = [1, 2, 5, 10].find(n => n * power >= rough * 0.999) * power;
  if (whole) step = Math.max(step, 1);
  const list = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) list.push(n * step);
  return { step, list };
}

function label(value, step) {
  const digits = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9)));
  return Math.abs(value) >= 1e6 ? round(value, 3) : value.toFixed(digits).replace('-', MINUS);
}

/* What is far above the rest would press it flat: it is cut off at the edge, and the caption says so. */
function ceiling(points, warmup) {
  const late = points.filter(p => p.first > warmup), some = late.length ? late : points;
  return 3 * some.reduce((sum, p) => sum + p.y, 0) / some.length;
}

class Plot {
  constructor(figure, options) {
    this.place = figure.querySelector('.plot');
    this.note = figure.querySelector('figcaption p');
    this.options = options;
    this.points = [];
    this.warmup = 0;
    this.last = 1;
    new ResizeObserver(() => this.draw()).observe(this.place);
    this.place.addEventListener('pointermove', e => this.point(e));
    this.place.addEventListener('pointerdown', e => this.point(e));
    this.place.addEventListener('pointerleave', () => { this.at = undefined; this.draw(); });
  }

  /* points: {first, last, y, low, high}. The axis goes to the last step that is to come, but leaves half of the plot empty at most. */
  show(points, warmup, steps) {
    this.points = points.filter(p => typeof p.y === 'number');
    this.warmup = warmup || 0;
    const done = points.length ? points[points.length - 1].last : 1;
    this.last = Math.max(2, done, Math.min(steps || 0, 2 * done));
    this.draw();
  }

  point(event) {
    const box = this.place.getBoundingClientRect();
    this.at = event.clientX - box.left;
    this.draw();
  }

  scales(width, height) {
    const zero = this.options.zero, points = this.points;
    const cut = zero ? ceiling(points, this.warmup) : Infinity;
    let low = zero ? 0 : Infinity, high = -Infinity;
    for (const p of points) {
      low = Math.min(low, p.low);
      high = Math.max(high, Math.min(p.high, cut));
    }
    if (low > 0 && low < 0.5 * high) low = 0;
    if (!(high > low)) { high = low + Math.max(Math.abs(low) * 0.1, 1e-9); }
    const unit = this.options.unit(high);
    const y = ticks(low / unit.scale, high / unit.scale, 5, false);
    const bottom = Math.min(low / unit.scale, Math.floor(low / unit.scale / y.step + 1e-9) * y.step);
    const top = Math.ceil(high / unit.scale / y.step - 1e-9) * y.step;
    const names = y.list.concat(top).map(v => label(v, y.step));
    const box = { left: 10 + 5.8 * Math.max(...names.map(n => n.length)), top: 26, right: width - 12, bottom: height - 38 };
    return {
      box, unit, cut, y: ticks(bottom, top, (top - bottom) / y.step, false), bottom, top,
      x: ticks(1, this.last, width > 450 ? 8 : 5, true),
      toX: step => box.left + (step - 1) / (this.last - 1) * (box.right - box.left),
      toY: value => box.bottom - (Math.min(value, cut) / unit.scale - bottom) / (top - bottom) * (box.bottom - box.top),
    };
  }

  axes(svg, s) {
    const text = { 'font-size': 10, class: 'f-muted' }, box = s.box;
    for (const v of s.y.list) {
      const y = box.bottom - (v - s.bottom) / (s.top - s.bottom) * (box.bottom - box.top);
      shape(svg, 'path', { d: 'M' + box.left + ' ' + y + 'H' + box.right, class: 'f-none l-grid' });
      shape(svg, 'text', { x: box.left - 6, y: y + 3.5, 'text-anchor': 'end', ...text }, label(v, s.y.step));
    }
    shape(svg, 'path', { d: 'M' + box.left + ' ' + box.bottom + 'H' + box.right, class: 'f-none l-axis' });
    for (const v of [1, ...s.x.list.filter(n => n > 1 && s.toX(n) - box.left > 24)])
      shape(svg, 'text', { x: s.toX(v), y: box.bottom + 15, 'text-anchor': 'middle', ...text }, label(v, s.x.step));
    shape(svg, 'text', { x: (box.left + box.right) / 2, y: box.bottom + 31, 'text-anchor': 'middle', 'font-size': 11, class: 'f-text' }, 'step');
    shape(svg, 'text', { x: 0, y: 12, 'font-size': 11, class: 'f-text' }, this.options.label + (s.unit.name ? ' (' + s.unit.name + ')' : ''));
  }

  curve(svg, s) {
    const middle = p => (p.first + p.last) / 2, at = (p, value) => s.toX(middle(p)).toFixed(1) + ' ' + s.toY(value).toFixed(1);
    if (this.points.some(p => p.high > p.low))
      shape(svg, 'path', { class: 'f-s1 pale', d: 'M' + this.points.map(p => at(p, p.high)).join('L') +
        'L' + this.points.map(p => at(p, p.low)).reverse().join('L') + 'z' });
    shape(svg, 'path', { class: 'f-none l-s1', 'stroke-width': this.points.length > 60 ? 1.2 : 1.7, 'stroke-linejoin': 'round',
      d: 'M' + this.points.map(p => at(p, p.y)).join('L') });
    const few = this.points.length <= 60 ? this.points : this.points.slice(-1);
    for (const p of few) shape(svg, 'circle', { class: 'f-s1', cx: s.toX(middle(p)), cy: s.toY(p.y), r: 2.2 });
  }

  hover(svg, s) {
    if (this.at === undefined) return;
    const step = 1 + (this.at - s.box.left) / (s.box.right - s.box.left) * (this.last - 1);
    const away = p => Math.abs((p.first + p.last) / 2 - step);
    const p = this.points.reduce((best, q) => away(q) < away(best) ? q : best);
    const x = s.toX((p.first + p.last) / 2), which = p.first === p.last ? 'step ' + p.first : 'steps ' + p.first + ' to ' + p.last;
    shape(svg, 'path', { class: 'f-none l-muted', 'stroke-dasharray': '3 3', d: 'M' + x + ' ' + s.box.top + 'V' + s.box.bottom });
    shape(svg, 'text', { x: s.box.right, y: 12, 'text-anchor': 'end', 'font-size': 11, class: 'f-text b' }, which + ': ' + this.options.print(p.y));
  }

  draw() {
    const width = this.place.clientWidth;
    if (!width) return;
    const height = Math.min(Math.max(0.5 * width, 200), 290);
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', this.options.label + ' over steps');
    if (!this.points.length) {
      shape(svg, 'text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', 'font-size': 11, class: 'f-muted' }, 'nothing to show yet');
      write(this.note, '');
      this.place.replaceChildren(svg);
      return;
    }
    const s = this.scales(width, height);
    const shaded = this.warmup >= 1 ? Math.min(s.toX(Math.min(this.warmup + 0.5, this.last)), s.box.right) - s.box.left : 0;
    if (shaded >= 2) shape(svg, 'rect', { x: s.box.left, y: s.box.top, width: shaded, height: s.box.bottom - s.box.top, class: 'f-shade' });
    this.axes(svg, s);
    this.curve(svg, s);
    this.hover(svg, s);
    this.place.replaceChildren(svg);
    const above = this.points.filter(p => p.high > s.cut), notes = [];
    if (shaded >= 2) notes.push('Shaded: warm-up.');
    if (above.length) notes.push('Above the edge: up to ' + this.options.print(Math.max(...above.map(p => p.high))) + '.');
    write(this.note, notes.join(' '));
  }
}

const plain = () => ({ scale: 1, name: '' });
const timeUnit = high => high < 1e-3 ? { scale: 1e-6, name: '\u00b5s' } : high < 1 ? { scale: 1e-3, name: 'ms' } : { scale: 1, name: 's' };
const lossPlot = new Plot($('loss'), { label: 'loss', unit: plain, print: v => round(v, 4) });
const timePlot = new Plot($('time'), { label: 'time per step', unit: timeUnit, print: duration, zero: true });

/* ---- the current run ---- */

function showDevices(devices) {
  const bars = $('devices').querySelector('.bars');
  if (bars.children.length !== 3 * devices.length) {
    bars.replaceChildren();
    for (const d of devices) {
      make(bars, 'span');
      make(make(bars, 'div', undefined, 'track'), 'div');
      make(bars, 'span');
    }
  }
  devices.forEach((d, i) => {
    const [name, track, share] = [...bars.children].slice(3 * i, 3 * i + 3), known = typeof d.busy === 'number';
    write(name, d.name);
    track.firstChild.style.width = (known ? 100 * d.busy : 0) + '%';
    write(share, known ? Math.round(100 * d.busy) + ' %' : '\u2013');
  });
  $('devices').hidden = !devices.length;
}

function showSeries(series) {
  $('curves').hidden = !series;
  if (!series) return;
  const list = index => series.points.map(p => ({ first: p[0], last: p[1], y: p[index], low: index === 3 ? p[4] : p[index], high: index === 3 ? p[5] : p[index] }));
  lossPlot.show(list(2), series.warmup, series.steps);
  timePlot.show(list(3), series.warmup, series.steps);
}

/* The curves are those of the newest run that has steps: of the current one, or of the one before it. */
function showNow(s) {
  const run = s.current, series = s.series, which = run || series;
  $('now').hidden = !which;
  if (!which) return;
  const study = of => (s.studies.find(t => t.id === of.study) || { title: 'Noise of the machine' }).title + ', ' + of.run;
  const isOwn = series && series.study === which.study && series.run === which.run;
  const words = [];
  if (isOwn) words.push('step ' + series.done + (series.steps ? ' of ' + series.steps : ''));
  if (isOwn && typeof series.points[series.points.length - 1][6] === 'number')
    words.push('learning rate ' + round(series.points[series.points.length - 1][6], 3));
  if (run) words.push('for ' + duration(Math.round(run.seconds)));
  write($('run'), (run ? '' : 'Last run: ') + study(which));
  $('command').parentNode.hidden = !run;
  if (run) write($('command'), run.command);
  write($('steps'), words.join(DOT));
  $('whose').hidden = !series || isOwn;
  if (series && !isOwn) write($('whose'), 'No step yet. Curves of the run before: ' + study(series) + '.');
  showDevices(s.devices);
  showSeries(series);
}

/* ---- studies and runs ---- */

const marks = { waiting: '\u25cb', running: '\u25b8', told: '\u2713', failed: '\u2717' };
const failed = study => study.runs.filter(r => r.state === 'failed').length;
const isOver = run => ['done', 'reused', 'failed', 'skipped'].includes(run.state);
let contentsShown = '';

function showContents(studies, groups) {
  const text = JSON.stringify(studies.map(t => [t.group, t.title, t.state, failed(t)]));
  if (text === contentsShown) return;
  contentsShown = text;
  const place = $('contents');
  let group, list;
  place.replaceChildren();
  for (const t of studies) {
    if (t.group !== group) {
      group = t.group;
      make(place, 'h2', group + (groups[group] ? '. ' + groups[group] : ''));
      list = make(place, 'ul');
    }
    const item = make(list, 'li', undefined, t.state);
    make(item, 'b', marks[t.state] || '').setAttribute('aria-label', t.state);
    make(item, 'span', t.title);
    if (failed(t)) make(item, 'small', failed(t) + ' failed');
  }
}

const folds = new Map();

function showRuns(studies) {
  for (const t of studies) {
    if (!t.runs.length) continue;
    let fold = folds.get(t.id);
    if (!fold) {
      const element = make($('runs'), 'details');
      fold = { element, summary: make(element, 'summary'), body: make(element, 'div', undefined, 'scroll'), text: '', state: '' };
      folds.set(t.id, fold);
    }
    if (fold.state !== t.state) fold.element.open = t.state === 'running' || failed(t) > 0;
    fold.state = t.state;
    const text = JSON.stringify(t.runs);
    if (fold.text === text) continue;
    fold.text = text;
    write(fold.summary, t.title + ': ' + t.runs.filter(isOver).length + ' of ' + many(t.runs.length, 'run'));
    showTable(fold.body, t.runs);
  }
}

function showTable(place, runs) {
  const table = make(place, 'table'), head = make(make(table, 'thead'), 'tr'), body = make(table, 'tbody');
  for (const name of ['run', 'state', 'time', '']) make(head, 'th', name, name === 'time' ? 'r' : '');
  for (const r of runs) {
    const row = make(body, 'tr');
    make(row, 'td', r.id, 'n');
    make(row, 'td', r.state, r.state === 'failed' ? 'failed' : '');
    make(row, 'td', r.seconds > 0 ? duration(r.state === 'running' ? Math.round(r.seconds) : r.seconds) : '', 'r');
    make(row, 'td', r.reason || '', 'why');
  }
  place.replaceChildren(table);
}

/* ---- the whole ---- */

function showHead(s) {
  const runs = s.studies.flatMap(t => t.runs), told = s.studies.filter(t => t.state === 'told').length;
  const bad = runs.filter(r => r.state === 'failed').length;
  const share = isComplete(s) ? 1 : s.left_s >= 0 && s.elapsed_s > 0 ? s.elapsed_s / (s.elapsed_s + s.left_s) : told / (s.studies.length || 1);
  const percent = Math.min(Math.round(100 * share), isComplete(s) ? 100 : 99);
  write($('title'), s.title);
  write($('counts'), [s.profile, told + ' of ' + s.studies.length + ' studies told',
    many(runs.filter(isOver).length, 'run') + ' over', ...(bad ? [bad + ' failed'] : [])].join(DOT));
  write($('times'), duration(Math.round(s.elapsed_s)) + (s.finished ? '' : s.left_s >= 0.5 ? DOT + 'about ' + duration(Math.round(s.left_s)) + ' left' : ''));
  $('progress').setAttribute('aria-valuenow', percent);
  $('progress').firstChild.style.width = percent + '%';
  document.title = (isComplete(s) ? 'Finished' : s.finished ? 'Stopped' : percent + ' %') + DOT + s.title;
}

function showMachine(facts) {
  const place = $('machine');
  if (place.children.length === 2 * facts.length) return;
  place.replaceChildren();
  for (const f of facts) {
    make(place, 'dt', f.name);
    make(place, 'dd', f.value);
  }
}

function news(text, bad) {
  $('news').hidden = !text;
  $('news').classList.toggle('bad', Boolean(bad));
  write($('news'), text);
}

/* A lab that was stopped has studies left. */
const isComplete = s => s.finished && s.studies.every(t => t.state === 'told' || t.state === 'failed');

function showEnd(s) {
  if (isComplete(s)) news('The lab is finished. ' + (s.report.ready ? 'The report is at ' : 'The report will be at ') + s.report.path);
  else if (s.finished || s.over) news('The lab was stopped before it was finished. Started again, it goes on with the runs that are missing.', true);
  else news('');
}

function show(s) {
  showHead(s);
  showEnd(s);
  showContents(s.studies, s.groups);
  showNow(s);
  showRuns(s.studies);
  showMachine(s.machine || []);
}

/* ---- asking ---- */

const SECOND = 1000;
let state, missed = 0, timer;

function lost() {
  if (!state) news('The lab does not answer.', true);
  else if (state.finished) showEnd(state);
  else news('The lab does not answer any more: it has ended, or was stopped. What it has written is beside ' + state.report.path, true);
}

/* A page that nobody sees asks less often: who looks takes time from what is measured. */
function again() {
  clearTimeout(timer);
  timer = setTimeout(ask, document.hidden ? 5 * SECOND : SECOND);
}

async function ask() {
  try {
    const response = await fetch('state', { signal: AbortSignal.timeout(5 * SECOND), cache: 'no-store' });
    if (!response.ok) throw new Error(response.status);
    state = await response.json();
    missed = 0;
  } catch (error) {
    missed++;
    if (missed < 3) again();
    else lost();
    return;
  }
  show(state);
  if (!state.over) again();
}

document.addEventListener('visibilitychange', () => { if (!document.hidden && missed < 3 && !(state && state.over)) { clearTimeout(timer); ask(); } });

const wide = matchMedia('(min-width:60.01rem)'), menu = document.querySelector('nav details');
const fold = () => { menu.open = wide.matches; };
wide.addEventListener('change', fold);
fold();

const copy = document.querySelector('.run button');
copy.hidden = !navigator.clipboard;
copy.addEventListener('click', async () => {
  await navigator.clipboard.writeText($('command').textContent);
  copy.textContent = 'Copied';
  setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
});
ask();
})();
