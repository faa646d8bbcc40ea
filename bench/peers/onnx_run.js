// Runs an ONNX file, f32 or int8, in ONNX Runtime on one thread.
//
//   node onnx_run.js MODEL.onnx X.bin BATCH              what it answers
//   node onnx_run.js MODEL.onnx X.bin BATCH --turns      as an arm of echelon compare: the first batch again and again
//
// X.bin holds contiguous f32 samples. Prints one JSON object with the "logits" of all of them. With ONNX_EXACT=1 it keeps from
// instructions whose sums of 16 bits saturate (of processors without VNNI), which otherwise change its answers in int8. The
// package onnxruntime-node is looked for as node does it (NODE_PATH); without it the exit code is 77.
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');

let ort;
try {
  ort = require('onnxruntime-node');
} catch (error) {
  console.error('onnxruntime-node is not installed: npm install --ignore-scripts onnxruntime-node');
  process.exit(77);
}
const SHAPE = [3, 32, 32], EACH = 3 * 32 * 32;

function floats(file) {
  const bytes = fs.readFileSync(file);
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

async function answer(run, count, batch) {
  const logits = [];
  for (let first = 0; first < count; first += batch) {
    logits.push(...await run(first, Math.min(batch, count - first)));
  }
  console.log(JSON.stringify({logits}));
}

async function takeTurns(text, step) {
  const now = () => Number(process.hrtime.bigint()) * 1e-9;
  for (let i = 0; i < 3; i++) await step();
  console.log(`ready ${text}`);
  for await (const line of readline.createInterface({input: process.stdin})) {
    const end = now() + Number(line.split(' ')[1]) * 1e-3, lines = [];
    for (let start = now(); lines.length < 2 || start < end;) {
      await step();
      const stop = now();
      lines.push((stop - start).toPrecision(9));
      start = stop;
    }
    console.log([...lines, 'done'].join('\n'));
  }
}

async function main() {
  const [model, file, batchText, turns] = process.argv.slice(2);
  const batch = Number(batchText), exact = Boolean(process.env.ONNX_EXACT);
  const session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: 1, interOpNumThreads: 1, executionMode: 'sequential',
    graphOptimizationLevel: 'all', extra: {session: {x64quantprecision: exact ? '1' : '0'}}});
  const x = floats(file), input = session.inputNames[0], output = session.outputNames[0];
  const feed = (first, n) => ({[input]: new ort.Tensor(
    'float32', x.slice(first * EACH, (first + n) * EACH), [n, ...SHAPE])});
  if (turns === '--turns') {
    const full = feed(0, batch);
    const text = `ONNX Runtime ${ort.env.versions.node}, ${path.basename(model, '.onnx')}${exact ? ', exact' : ''}`;
    await takeTurns(text, () => session.run(full));
  } else {
    await answer(async (first, n) => (await session.run(feed(first, n)))[output].data, x.length / EACH, batch);
  }
}

main().catch((error) => { console.error(String(error)); process.exit(1); });
