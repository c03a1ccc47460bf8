import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { NodeBed } from '../../harness/node-bed.ts';
import { until } from '../../harness/until.ts';

const MIB = 1024n ** 2n;

/** What came of a burst. */
interface BurstResult {
  readonly claims: number;
  /** CreateVolume calls. */
  readonly calls: number;
  /** Calls that a driver refused for want of room. */
  readonly refused: number;
  /** Calls whose answer came too late. */
  readonly unanswered: number;
  /** Volumes on each node. */
  readonly volumes: readonly number[];
  readonly capacityCalls: number;
  readonly seconds: number;
}

/** Creates as many claims at once as all nodes together have room for, with two workers, and waits
 * until each has its volume. */
export async function playBurst(o: {
  readonly nodes: number;
  readonly perNode: number;
}): Promise<BurstResult> {
  let refused = 0;
  let unanswered = 0;
  const onCall = async (call: DriverCall): Promise<unknown> => {
    if (call.method !== 'CreateVolume') return undefined;
    try {
      const answer = await call.proceed();
      if (call.signal.aborted) unanswered += 1;
      return answer;
    } catch (error) {
      refused += 1;
      throw error;
    }
  };
  const nodes = Array.from({ length: o.nodes }, (_, i) => ({
    name: `n${i}`,
    capacityBytes: BigInt(o.perNode) * MIB,
    // Long enough that many creations are under way at once.
    delayMs: 20,
    onCall,
  }));
  const bed = await NodeBed.open(nodes);
  await bed.createClass('immediate');
  // All of it runs in this process, whose answers may come late.
  const patient = '--timeout=60s';
  await bed.startIngest(patient);
  await bed.startJobs(patient);
  await bed.startJobs(patient);
  const startMs = Date.now();
  const names = Array.from({ length: o.nodes * o.perNode }, (_, i) => `burst-${i}`);
  await Promise.all(names.map((name) => bed.createClaim(name)));
  const isDone = async (): Promise<boolean> => (await bed.volumes()).length === names.length;
  await until(isDone, 'every claim has a volume', 300_000);
  const count = (method: string): number =>
    nodes.map(({ name }) => bed.calls(name, method)).reduce((sum, calls) => sum + calls, 0);
  const result = {
    claims: names.length,
    calls: count('CreateVolume'),
    refused,
    unanswered,
    volumes: nodes.map(({ name }) => bed.drivers.get(name)?.volumes().length ?? 0),
    capacityCalls: count('GetCapacity'),
    seconds: Math.round((Date.now() - startMs) / 100) / 10,
  };
  await bed.close();
  return result;
}
