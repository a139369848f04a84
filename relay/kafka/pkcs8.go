package kafka

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
)

// The parts of RFC 8018 that OpenSSL and keytool write: PBES2 with PBKDF2 and a CBC cipher. The
// standard library reads PKCS #8 keys only in clear.
type (
	algorithm struct {
		ID     asn1.ObjectIdentifier
		Params asn1.RawValue `asn1:"optional"`
	}
	encryptedKey struct {
		Algorithm algorithm
		Data      []byte
	}
	pbes2Params struct {
		KDF    algorithm
		Cipher algorithm
	}
	pbkdf2Params struct {
		Salt       []byte
		Iterations int
		KeyLength  int       `asn1:"optional"`
		PRF        algorithm `asn1:"optional"`
	}
)

var errKeyPassword = errors.New("ssl.key.password does not open the key")

// decryptPKCS8 returns the key's DER form.
func decryptPKCS8(der []byte, password string) ([]byte, error) {
	var enc encryptedKey
	var outer pbes2Params
	var kdf pbkdf2Params
	if _, err := asn1.Unmarshal(der, &enc); err != nil {
		return nil, fmt.Errorf("read the encrypted key: %w", err)
	}
	if enc.Algorithm.ID.String() != "1.2.840.113549.1.5.13" {
		return nil, errors.New("the key's encryption is too old; convert it: openssl pkcs8 -topk8 -v2 aes-256-cbc -in KEY.pem -out NEW.pem")
	}
	if _, err := asn1.Unmarshal(enc.Algorithm.Params.FullBytes, &outer); err != nil {
		return nil, fmt.Errorf("read the encrypted key: %w", err)
	}
	if _, err := asn1.Unmarshal(outer.KDF.Params.FullBytes, &kdf); err != nil {
		return nil, fmt.Errorf("read the encrypted key: %w", err)
	}
	newHash, err := prf(kdf.PRF.ID.String())
	if err != nil {
		return nil, err
	}
	block, iv, err := outer.Cipher.open(newHash, kdf, password)
	if err != nil {
		return nil, err
	}
	if len(enc.Data) == 0 || len(enc.Data)%block.BlockSize() != 0 {
		return nil, errors.New("read the encrypted key: its length is wrong")
	}
	plain := make([]byte, len(enc.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, enc.Data)
	return unpad(plain, block.BlockSize())
}

func prf(id string) (func() hash.Hash, error) {
	switch id {
	case "", "1.2.840.113549.2.7":
		return sha1.New, nil
	case "1.2.840.113549.2.9":
		return sha256.New, nil
	case "1.2.840.113549.2.10":
		return sha512.New384, nil
	case "1.2.840.113549.2.11":
		return sha512.New, nil
	}
	return nil, fmt.Errorf("the key's password hash %s is not supported", id)
}

// open makes the cipher and its initial vector.
func (a algorithm) open(newHash func() hash.Hash, kdf pbkdf2Params, password string) (cipher.Block, []byte, error) {
	lengths := map[string]int{"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32, "1.2.840.113549.3.7": 24}
	length, known := lengths[a.ID.String()]
	if !known {
		return nil, nil, fmt.Errorf("the key's cipher %s is not supported", a.ID)
	}
	if kdf.Iterations < 1 || kdf.Iterations > 10_000_000 {
		return nil, nil, fmt.Errorf("read the encrypted key: %d iterations", kdf.Iterations)
	}
	var iv []byte
	if _, err := asn1.Unmarshal(a.Params.FullBytes, &iv); err != nil {
		return nil, nil, fmt.Errorf("read the encrypted key: %w", err)
	}
	key, err := pbkdf2.Key(newHash, password, kdf.Salt, kdf.Iterations, length)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the key's key: %w", err)
	}
	newBlock := aes.NewCipher
	if a.ID.String() == "1.2.840.113549.3.7" {
		newBlock = des.NewTripleDESCipher
	}
	block, err := newBlock(key)
	if err != nil {
		return nil, nil, err
	}
	if len(iv) != block.BlockSize() {
		return nil, nil, errors.New("read the encrypted key: its initial vector has the wrong length")
	}
	return block, iv, nil
}

func unpad(plain []byte, size int) ([]byte, error) {
	n := int(plain[len(plain)-1])
	if n < 1 || n > size {
		return nil, errKeyPassword
	}
	for _, b := range plain[len(plain)-n:] {
		if int(b) != n {
			return nil, errKeyPassword
		}
	}
	return plain[:len(plain)-n], nil
}
