import { flagsOf } from '#src/dispatch.ts';
import { driverFlags } from '#src/driver-config/read-config.ts';
import { processes } from '#src/processes.ts';
import type { FlagSpec } from '#src/runtime/flags.ts';

/** JSON Schema of --driver-config for editors, the content of docs/driver-config.schema.json. The
 * file itself is read by stricter rules: those of src/driver-config/read-config.ts, which also
 * compares sections. */
export function driverConfigSchema(): object {
  const keys = Object.entries(driverFlags(flagsOf(processes))).toSorted(([a], [b]) =>
    a.localeCompare(b),
  );
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'sutler: drivers of one ingest and one jobs',
    type: 'object',
    required: ['drivers'],
    additionalProperties: false,
    properties: {
      drivers: {
        description: 'A section for each driver, by its name as GetPluginInfo returns it.',
        type: 'object',
        additionalProperties: false,
        patternProperties: {
          '^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$': {
            type: 'object',
            additionalProperties: false,
            properties: Object.fromEntries(keys.map(([name, spec]) => [name, keySchema(spec)])),
          },
        },
      },
    },
  };
}

function keySchema(spec: FlagSpec): object {
  const fallback = spec.type === 'labels' || !spec.default ? {} : { default: spec.default };
  return { description: spec.help, ...typeSchema(spec), ...fallback };
}

const TEXTS = { type: 'array', items: { type: 'string' } };
/** As parseDurationMs reads it. */
const DURATION = String.raw`^[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$`;

function typeSchema(spec: FlagSpec): object {
  switch (spec.type) {
    case 'string':
      return { type: 'string', ...(spec.values === undefined ? {} : { enum: spec.values }) };
    case 'bool':
      return { type: 'boolean' };
    case 'int':
    case 'float':
      return {
        type: spec.type === 'int' ? 'integer' : 'number',
        ...(spec.min === undefined ? {} : { minimum: spec.min }),
        ...(spec.max === undefined ? {} : { maximum: spec.max }),
      };
    case 'durationMs':
      return { anyOf: [{ type: 'string', pattern: DURATION }, { const: 0 }] };
    case 'strings':
      return { anyOf: [{ type: 'string' }, TEXTS] };
    case 'labels':
      return {
        anyOf: [{ type: 'string' }, { type: 'object', additionalProperties: { type: 'string' } }],
      };
  }
}
