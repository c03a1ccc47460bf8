import { parseQuantityBytes, QuantityError } from '#src/kube/quantity.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { nodePool, type Pool } from './pools.ts';

const FORM = /^([^/=]+)\/([^/=]+)=([^/=]+)$/;
/** A zone and a node name are also values of labels. */
const LABEL_VALUE = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const MAX_BYTES = 2n ** 63n - 1n;

/** Parses `--pool=ZONE/NODE=SIZE`, given once for each node.
 * @throws UsageError */
export function parsePools(texts: readonly string[]): readonly Pool[] {
  const pools = texts.map(parsePool);
  const names = pools.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined)
    throw new UsageError(`--pool: the node ${twice} has two pools; give each node one`);
  if (pools.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0n) > MAX_BYTES)
    throw new UsageError('--pool: all pools together must be less than 8Ei');
  return pools;
}

function parsePool(text: string): Pool {
  const [, zone = '', name = '', size = ''] = FORM.exec(text) ?? [];
  const refuse = (why: string, cause?: unknown): never => {
    throw new UsageError(`--pool ${text}: ${why}`, { cause });
  };
  if (!LABEL_VALUE.test(zone) || !LABEL_VALUE.test(name))
    return refuse('write ZONE/NODE=SIZE, such as zone-a/node-a1=10Gi');
  try {
    const capacityBytes = parseQuantityBytes(size);
    if (capacityBytes < 0n) return refuse('the size must not be negative');
    return nodePool({ name, zone, capacityBytes });
  } catch (cause) {
    if (!(cause instanceof QuantityError)) throw cause;
    return refuse(`the size is not a quantity; write for example 10Gi`, cause);
  }
}
