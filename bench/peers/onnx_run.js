// Runs an ONNX file in ONNX Runtime on one thread: what it answers, and how long a batch takes.
//
//   node onnx_run.js MODEL.onnx X.bin BATCH [RUNS]
//
// X.bin holds f32 samples, one behind the other. Prints one JSON object: "logits" for all of them, and "seconds" of RUNS
// timed batches of the first samples, after three that warm up. With ONNX_EXACT=1 it keeps from instructions whose sums of 16 bits
// saturate (of processors without VNNI), which otherwise change its answers in int8. The package onnxruntime-node is looked for as node does it
// (NODE_PATH); without it the exit code is 77.
'use strict';
const fs = require('fs');

let ort;
try {
  ort = require('onnxruntime-node');
} catch (error) {
  console.error('onnxruntime-node is not installed: npm install --ignore-scripts onnxruntime-node');
  process.exit(77);
}

function floats(path) {
  const bytes = fs.readFileSync(path);
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

async function main() {
  const [model, file, batchText, runsText] = process.argv.slice(2);
  const batch = Number(batchText), runs = Number(runsText || 0);
  const session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: 1, interOpNumThreads: 1, executionMode: 'sequential',
    graphOptimizationLevel: 'all', extra: {session: {x64quantprecision: process.env.ONNX_EXACT ? '1' : '0'}}});
  const x = floats(file), input = session.inputNames[0], output = session.outputNames[0];
  const shape = [3, 32, 32];
  const each = shape.reduce((a, b) => a * b, 1), count = x.length / each;
  const feed = (first, n) => ({[input]: new ort.Tensor(
    'float32', x.slice(first * each, (first + n) * each), [n, ...shape])});
  const logits = [];
  for (let first = 0; first < count; first += batch) {
    const n = Math.min(batch, count - first);
    const result = await session.run(feed(first, n));
    logits.push(...result[output].data);
  }
  const seconds = [], full = feed(0, batch);
  for (let i = -3; i < runs; i++) {
    const start = process.hrtime.bigint();
    await session.run(full);
    if (i >= 0) seconds.push(Number(process.hrtime.bigint() - start) * 1e-9);
  }
  console.log(JSON.stringify({logits, seconds}));
}

main().catch((error) => { console.error(String(error)); process.exit(1); });
