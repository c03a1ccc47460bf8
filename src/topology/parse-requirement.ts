import { isFields, parseJson } from '../runtime/json.ts';
import type { TopologyRequirement } from './requirement.ts';

/** The longest text that a job keeps. */
const MAX_LENGTH = 8_192;

/** Encodes a requirement for a job, so that later calls ask for the same topology; '' for none, and
 * for one that is too long. */
export function requirementText(requirement: TopologyRequirement | undefined): string {
  const text = requirement === undefined ? '' : JSON.stringify(requirement);
  return text.length > MAX_LENGTH ? '' : text;
}

/** Decodes a requirement; undefined for '' and for an invalid text. */
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
