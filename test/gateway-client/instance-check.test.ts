import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { InstanceCheck } from '#src/gateway-client/instance-check.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import { type Replica, startBalancer, startReplica } from '../harness/replicas.ts';
import { until } from '../harness/until.ts';

describe('InstanceCheck', () => {
  let a: Replica;
  let b: Replica;
  let check: InstanceCheck | undefined;
  let lines: string[];
  let jumpMs = 0;

  before(async () => {
    a = await startReplica();
    b = await startReplica();
  });
  after(async () => {
    await a.close();
    await b.close();
  });
  afterEach(() => check?.close());

  const start = (port: number): InstanceCheck => {
    lines = [];
    jumpMs = 0;
    return (check = new InstanceCheck({
      addresses: [{ kind: 'tcp', host: '127.0.0.1', port }],
      security: { tls: undefined },
      timeoutMs: 5_000,
      periodMs: 20,
      clock: { ...systemClock, nowMs: () => Date.now() + jumpMs },
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'json',
        write: (line) => void lines.push(line),
      }),
    }));
  };

  it('says once that an address leads to several gateways, and what to do', async () => {
    const balancer = await startBalancer([a.port, b.port]);
    const started = start(balancer.port);
    await until(() => started.trouble !== undefined, 'trouble');
    assert.match(
      started.trouble ?? '',
      /several gateways answer at dns:\/\/\/127\.0\.0\.1:\d+, .*--gateway-service=NAMESPACE\/NAME/,
    );
    await until(() => balancer.connections > 20, 'it goes on');
    assert.equal(lines.length, 1);
    balancer.close();
  });

  it('takes another gateway in the place of the first for a restart', async () => {
    const balancer = await startBalancer([a.port]);
    const started = start(balancer.port);
    await until(() => balancer.connections > 3, 'the first one is known');
    balancer.lead([b.port]);
    const before = balancer.connections;
    await until(() => balancer.connections > before + 5, 'the second one is known');
    assert.equal(started.trouble, undefined);
    balancer.close();
  });

  it('ends its report a minute after the address led to several gateways last', async () => {
    const balancer = await startBalancer([a.port, b.port]);
    const started = start(balancer.port);
    await until(() => started.trouble !== undefined, 'trouble');
    balancer.lead([b.port]);
    const before = balancer.connections;
    await until(() => balancer.connections > before + 5, 'one gateway is left');
    jumpMs = 61_000;
    assert.equal(started.trouble, undefined);
    balancer.close();
  });
});
