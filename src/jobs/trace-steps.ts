import { performance } from 'node:perf_hooks';
import type { Logger } from '../runtime/log.ts';
import { traceStep } from '../runtime/trace-step.ts';
import type { ProcessorPorts } from './ports.ts';

/** The ports whose calls are steps of a run. */
const TRACED = ['kube', 'csi', 'records'] as const;

/** With -v=6: logs each request, driver call and change of a record that runs make, with the time
 * at which it began and how long it took. Otherwise returns the ports as they are. */
export function traceSteps(ports: ProcessorPorts): ProcessorPorts {
  const { log } = ports;
  if (!log.isLevelEnabled('trace')) return ports;
  return {
    ...ports,
    ...Object.fromEntries(TRACED.map((name) => [name, traceCalls(ports[name], name, log)])),
  };
}

/** The same object, except that each call of a method that returns a promise is logged. */
function traceCalls(target: object, name: string, log: Logger): unknown {
  return new Proxy(target, {
    get(_, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return (...args: readonly unknown[]): unknown => {
        const startedMs = performance.now();
        const result: unknown = Reflect.apply(value, target, args);
        if (!(result instanceof Promise)) return result;
        return result.finally(() => traceStep(log, `${name}.${String(property)}`, startedMs));
      };
    },
  });
}
