import { invalidValue, required, tooLong } from './field-error.ts';
import type { Cause } from './api-error.ts';
import { objectAt, textAt, textsAt, type Json, type JsonObject } from './json-value.ts';

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = `${LABEL}(\\.${LABEL})*`;
const QUALIFIED = '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]';
const labelForm = new RegExp(`^${LABEL}$`);
const subdomainForm = new RegExp(`^${SUBDOMAIN}$`);
const qualifiedForm = new RegExp(`^${QUALIFIED}$`);
const labelValueForm = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;
const configKeyForm = /^[-._a-zA-Z0-9]+$/;

/** Why a text is no DNS subdomain (most object names), or nothing. */
export function subdomainComplaint(name: string): string | undefined {
  if (name.length > 253) return 'must be no more than 253 bytes';
  if (subdomainForm.test(name)) return undefined;
  return `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '${SUBDOMAIN}')`;
}

/** Why a text is no DNS label (namespaces), or nothing. */
export function labelComplaint(name: string): string | undefined {
  if (name.length > 63) return 'must be no more than 63 bytes';
  if (labelForm.test(name)) return undefined;
  return `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '${LABEL}')`;
}

/** Why a text is no key of a Secret or ConfigMap, or nothing. */
export function configKeyComplaint(key: string): string | undefined {
  if (key.length > 253) return 'must be no more than 253 bytes';
  if (key === '.' || key === '..') return `must not be '${key}'`;
  if (configKeyForm.test(key)) return undefined;
  return "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
}

/** Why a text is no qualified name (`example.com/name`: label keys, annotation keys, finalizers),
 * or nothing. */
export function qualifiedNameComplaint(key: string): string | undefined {
  const parts = key.split('/');
  const name = parts.at(-1) ?? '';
  if (parts.length > 2) {
    return `a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '${QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`;
  }
  if (parts.length === 2) {
    if (parts[0] === '') return 'prefix part must be non-empty';
    const complaint = subdomainComplaint(parts[0] ?? '');
    if (complaint !== undefined) return `prefix part ${complaint}`;
  }
  if (name === '') return 'name part must be non-empty';
  if (name.length > 63) return 'name part must be no more than 63 bytes';
  if (qualifiedForm.test(name)) return undefined;
  return `name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '${QUALIFIED}')`;
}

/** What is wrong with labels: keys are qualified names, values at most 63 characters of the same
 * alphabet. */
export function labelCauses(labels: JsonObject, field: string): Cause[] {
  return Object.entries(labels).flatMap(([key, value]) => {
    const complaint = qualifiedNameComplaint(key);
    if (complaint !== undefined) return [invalidValue(field, key, complaint)];
    const text = typeof value === 'string' ? value : '';
    if (text.length > 63) return [invalidValue(field, text, 'must be no more than 63 bytes')];
    if (labelValueForm.test(text)) return [];
    return [
      invalidValue(
        field,
        text,
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
      ),
    ];
  });
}

const ANNOTATIONS_MAX_BYTES = 256 * 1024;

/** What is wrong with the metadata of an object that is to be stored. */
export function metadataCauses(
  metadata: JsonObject,
  nameComplaint: (name: string) => string | undefined,
): Cause[] {
  const causes: Cause[] = [];
  const name = typeof metadata['name'] === 'string' ? metadata['name'] : '';
  const generateName = typeof metadata['generateName'] === 'string' ? metadata['generateName'] : '';
  if (name === '') causes.push(required('metadata.name', 'name or generateName is required'));
  else {
    const complaint = nameComplaint(name);
    if (complaint !== undefined) causes.push(invalidValue('metadata.name', name, complaint));
  }
  if (generateName !== '') {
    const complaint = nameComplaint(generateName.endsWith('-') ? `${generateName}a` : generateName);
    if (complaint !== undefined)
      causes.push(invalidValue('metadata.generateName', generateName, complaint));
  }
  causes.push(...labelCauses(objectAt(metadata, 'labels'), 'metadata.labels'));
  const annotations = objectAt(metadata, 'annotations');
  let annotationBytes = 0;
  for (const [key, value] of Object.entries(annotations)) {
    const complaint = qualifiedNameComplaint(key.toLowerCase());
    if (complaint !== undefined) causes.push(invalidValue('metadata.annotations', key, complaint));
    annotationBytes +=
      Buffer.byteLength(key) + Buffer.byteLength(typeof value === 'string' ? value : '');
  }
  if (annotationBytes > ANNOTATIONS_MAX_BYTES)
    causes.push(tooLong('metadata.annotations', ANNOTATIONS_MAX_BYTES));
  causes.push(...ownerCauses(metadata['ownerReferences']));
  for (const finalizer of textsAt(metadata, 'finalizers')) {
    const complaint = qualifiedNameComplaint(finalizer);
    if (complaint !== undefined)
      causes.push(invalidValue('metadata.finalizers', finalizer, complaint));
    else if (!finalizer.includes('/') && !PLAIN_FINALIZERS.has(finalizer)) {
      causes.push(
        invalidValue(
          'metadata.finalizers',
          finalizer,
          'name is neither a standard finalizer name nor is it fully qualified',
        ),
      );
    }
  }
  return causes;
}

function ownerCauses(owners: Json | undefined): Cause[] {
  if (!Array.isArray(owners)) return [];
  return owners.flatMap((owner) =>
    ['apiVersion', 'kind', 'name', 'uid']
      .filter((member) => textAt(owner, member) === '')
      .map((member) =>
        invalidValue(
          `metadata.ownerReferences.${member}`,
          '',
          member === 'apiVersion' ? 'version must not be empty' : 'must not be empty',
        ),
      ),
  );
}

const PLAIN_FINALIZERS = new Set(['kubernetes', 'orphan', 'foregroundDeletion']);
