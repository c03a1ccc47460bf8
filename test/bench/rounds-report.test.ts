import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { drainText } from '../../bench/rounds-report.ts';
import type { DrainResult } from '../../bench/rounds.ts';

const result = (jobsMs: number, spanMs: number): DrainResult => ({
  claims: 10,
  firstMs: 5,
  spanMs,
  usage: new Map([
    ['jobs: CPU, ms', jobsMs],
    ['redis-server: CPU, ms', 10],
    ['etcd: CPU, ms', 1000],
  ]),
});
const cells = (text: string, title: string): readonly string[] =>
  text
    .split('\n')
    .find((line) => line.startsWith(title))
    ?.slice(title.length)
    .trim()
    .split(/\s+/) ?? [];

describe('the report of waiting claims', () => {
  const text = drainText({
    sutler: [result(30, 100), result(20, 300), result(90, 200)],
    peer: [result(10, 100)],
  });

  it('has the median of the rounds, of sutler and the peer, and their ratio', () => {
    assert.deepEqual(cells(text, 'first to last PV, ms'), ['200', '100', '2.00']);
  });

  it('counts Redis to the provisioner, and etcd not', () => {
    const title = 'CPU of the provisioner with Redis, ms a claim';
    assert.deepEqual(cells(text, title), ['4.00', '2.00', '2.00']);
  });
});
