import { collectDefaultMetrics, Registry } from 'prom-client';

export { Registry } from 'prom-client';

/** Creates the registry of a process, with Node's own metrics. Parts that have metrics receive it
 * as an argument. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}
