import { readFileSync } from 'node:fs';
import { CLOCK_FILE } from './process-clock.ts';

/* Loaded by `node --import` before the program: shifts Date by what the file of CLOCK_FILE says.
 * Timers and performance.now() stay as they are, as when a machine's clock is set. */

const POLL_PERIOD_MS = 50;
const file = process.env[CLOCK_FILE] ?? '';
const machineNowMs = Date.now;
let shiftMs = 0;

function read(): void {
  try {
    const text = readFileSync(file, 'utf8');
    // While the file is being written, it is empty.
    if (text !== '') shiftMs = Number(text);
  } catch {
    // There is no file before the first shift.
  }
}

read();
setInterval(read, POLL_PERIOD_MS).unref();
Date.now = () => machineNowMs() + shiftMs;
globalThis.Date = new Proxy(Date, {
  construct: (target, args, newTarget) =>
    Reflect.construct(target, args.length === 0 ? [target.now()] : args, newTarget) as object,
  apply: (target) => new target(target.now()).toString(),
});
