import { isFields, parseJson } from '../runtime/json.ts';
import type { TopologyRequirement } from './requirement.ts';

/** More is not kept with a job. */
const MAX_LENGTH = 8_192;

/** A requirement as a job keeps it, so that later calls ask for the same place; '' for none, and
 * for one that is too long. */
export function requirementText(requirement: TopologyRequirement | undefined): string {
  const text = requirement === undefined ? '' : JSON.stringify(requirement);
  return text.length > MAX_LENGTH ? '' : text;
}

/** Reads it; undefined for what is none. */
export function parseRequirement(text: string): TopologyRequirement | undefined {
  const value = text === '' ? undefined : parseJson(text);
  if (!isFields(value)) return undefined;
  const { requisite, preferred } = value;
  return areTopologies(requisite) && areTopologies(preferred)
    ? { requisite, preferred }
    : undefined;
}

function areTopologies(value: unknown): value is TopologyRequirement['requisite'] {
  return (
    Array.isArray(value) &&
    value.every(
      (each: unknown) =>
        isFields(each) &&
        isFields(each['segments']) &&
        Object.values(each['segments']).every((segment) => typeof segment === 'string'),
    )
  );
}
