import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Counter, Histogram, Registry } from 'prom-client';
import { increase, parseMetrics, sumBy } from '../../bench/prometheus.ts';

async function page(): Promise<string> {
  const registry = new Registry();
  const requests = new Counter({
    name: 'requests_total',
    help: 'Requests.',
    labelNames: ['verb', 'path'],
    registers: [registry],
  });
  requests.inc({ verb: 'get', path: 'a "quoted\\" one, with {braces}' }, 3);
  requests.inc({ verb: 'get', path: 'two\nlines' });
  requests.inc({ verb: 'post', path: '/' }, 0.5);
  new Histogram({ name: 'seconds', help: 'Time.', buckets: [1], registers: [registry] }).observe(2);
  return registry.metrics();
}

describe('parseMetrics', () => {
  it('reads the text of prom-client, also escaped label values', async () => {
    const samples = parseMetrics(await page());
    const paths = samples
      .filter(({ name }) => name === 'requests_total')
      .map(({ labels, value }) => [labels['path'], value]);
    assert.deepEqual(paths, [
      ['a "quoted\\" one, with {braces}', 3],
      ['two\nlines', 1],
      ['/', 0.5],
    ]);
    assert.deepEqual(
      samples.find(({ name }) => name === 'seconds_count'),
      { name: 'seconds_count', labels: {}, value: 1 },
    );
    assert.equal(
      samples.find(({ name, labels }) => name === 'seconds_bucket' && labels['le'] === '+Inf')
        ?.value,
      1,
    );
  });
});

describe('sumBy and increase', () => {
  it('give the growth of a counter between two readings, by a key of labels', async () => {
    const before = sumBy(parseMetrics(await page()), 'requests_total', ({ verb = '' }) => verb);
    assert.deepEqual(
      before,
      new Map([
        ['get', 4],
        ['post', 0.5],
      ]),
    );
    assert.deepEqual(
      increase(
        before,
        new Map([
          ['get', 4],
          ['post', 2.5],
          ['put', 1],
        ]),
      ),
      new Map([
        ['post', 2],
        ['put', 1],
      ]),
    );
  });
});
