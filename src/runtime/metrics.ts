import { collectDefaultMetrics, Registry } from 'prom-client';

export { Registry } from 'prom-client';

/** The one registry of a process, with Node's own metrics; the rest arrives as an argument. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}
