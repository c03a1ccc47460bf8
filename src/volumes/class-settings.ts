import { CREATION_TIMEOUT, MAX_IN_FLIGHT } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type FlagSpec, parseValue } from '../runtime/flags.ts';
import { shorten } from '../runtime/printable.ts';

/** The values of a class's annotations; undefined for one that is absent or can't be read. */
export interface ClassSettings {
  readonly maxInFlight: number | undefined;
  readonly creationTimeoutMs: number | undefined;
  /** What is wrong with each annotation that can't be read, and what to write. */
  readonly unreadable: readonly string[];
}

const SPECS = {
  [MAX_IN_FLIGHT]: {
    spec: { type: 'int', default: 0, min: 0, help: '' },
    form: 'a whole number; 0 pauses the class',
  },
  [CREATION_TIMEOUT]: {
    spec: { type: 'durationMs', min: '0s', help: '' },
    form: 'a duration like 90s, 20m or 1h30m',
  },
} as const satisfies Readonly<Record<string, { spec: FlagSpec; form: string }>>;

/** Longer values are invalid, and messages cut them. */
const MAX_VALUE_LENGTH = 60;

/** Reads the annotations by which an administrator limits the calls for a class. */
export function readClassSettings(cls: Class | undefined): ClassSettings {
  const unreadable: string[] = [];
  const read = (name: keyof typeof SPECS): number | undefined => {
    const text = cls?.metadata.annotations?.[name];
    if (text === undefined) return undefined;
    const { spec, form } = SPECS[name];
    try {
      return Number(parseValue(spec, [shorten(text, MAX_VALUE_LENGTH)]));
    } catch (error) {
      unreadable.push(`annotation ${name} is ignored: ${messageOf(error)}; write ${form}`);
      return undefined;
    }
  };
  const maxInFlight = read(MAX_IN_FLIGHT);
  const creationTimeoutMs = read(CREATION_TIMEOUT);
  return { maxInFlight, creationTimeoutMs, unreadable };
}
